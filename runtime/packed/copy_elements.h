// Copies between tensors of other strides.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// As to.copy_(from), of plain tensors on the CPU (call_conditions.h), of one shape and dtype, that share no memory. Pieces that lie in one piece in
// both are copied as such; where one is the other transposed, of numbers of 16 or 32 bits, a kernel copies tiles.
void copy_elements(const at::Tensor& to, const at::Tensor& from);

// The same of other sizes and strides in their memory.
void copy_elements(const at::Tensor& to, at::IntArrayRef to_strides, const at::Tensor& from,
                   at::IntArrayRef from_strides, at::IntArrayRef sizes);

}  // namespace ipex::runtime
