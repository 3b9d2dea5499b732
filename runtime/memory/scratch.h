// Memory that a kernel needs while it runs.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// So many bytes, or more, for the thread that asks: good until it asks again.
at::Tensor scratch(size_t bytes);

}  // namespace ipex::runtime
