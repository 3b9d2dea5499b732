// Sums and Euclidean norms over some dimensions of a tensor of any layout.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/norms.h"

namespace ipex::runtime {

// Why aten computes it. Null where `reduced` does: of float32 without gradients, in which the summed dimensions are as one, and
// they or one of the others lie innermost.
const char* reason_against_reduction(const at::Tensor& x, at::IntArrayRef dim);

// Contiguous, as in eager.
at::Tensor reduced(const at::Tensor& x, at::IntArrayRef dim, bool keepdim, const SumKernels& kernels);

}  // namespace ipex::runtime
