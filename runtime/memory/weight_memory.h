// Memory for packed weights: it is counted as theirs, and goes back to the system with them.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// As at::empty, for tensors on the CPU.
at::Tensor empty_weight(at::IntArrayRef sizes, const at::TensorOptions& options);
// The same, cleared.
at::Tensor zero_weight(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace ipex::runtime
