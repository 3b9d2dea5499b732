// Memory that a kernel needs while it runs.
//
// Each thread keeps its buffer for the next kernel, so that it need not be allocated anew: up to 8 MiB, and all threads
// together up to 8 MiB per core. What exceeds either bound lies where results do, and is free for others after the call: a
// program may have many more threads than cores.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// So many bytes, or more, for the thread that asks: good until it asks again.
at::Tensor scratch(size_t bytes);

}  // namespace ipex::runtime
