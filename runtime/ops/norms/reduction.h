// Sums and Euclidean norms over some dimensions of a tensor of any layout.
#pragma once

#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>

#include <bitset>

#include "kernels/norms.h"

namespace ipex::runtime {

using IsSummed = std::bitset<at::dim_bitset_size>;

// Sums of a tensor of these sizes, one for each place of the dimensions in `kept`, the outermost first. Those of size 1 may be
// missing. The result is contiguous, as in eager.
at::Tensor in_order_of_dimensions(const at::Tensor& sums, at::IntArrayRef sizes, at::IntArrayRef kept,
                                  const IsSummed& is_summed, bool keepdim);

// Contiguous, as in eager. It is there for float32 without gradients, in which the summed dimensions are as one, and they or one
// of the others lie innermost; else undefined, with the reason.
at::Tensor reduced(const at::Tensor& x, at::IntArrayRef dim, bool keepdim, const SumKernels& kernels,
                   const char*& reason);

}  // namespace ipex::runtime
