// Sums and Euclidean norms over some dimensions of a tensor of any layout.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/norms.h"

namespace ipex::runtime {

// Contiguous, as in eager. It is there for float32 without gradients, in which the summed dimensions are as one, and they or one
// of the others lie innermost; else undefined, with the reason.
at::Tensor reduced(const at::Tensor& x, at::IntArrayRef dim, bool keepdim, const SumKernels& kernels,
                   const char*& reason);

}  // namespace ipex::runtime
