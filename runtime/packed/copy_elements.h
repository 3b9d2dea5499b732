// Copies between tensors of other strides.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// As to.copy_(from), of tensors on the CPU of one shape and dtype that share no memory. Pieces that lie in one piece in
// both are copied as such; where one tensor of float32 is the other transposed, a kernel of ours copies tiles.
void copy_elements(const at::Tensor& to, const at::Tensor& from);

// The same of other sizes and strides in their memory.
void copy_elements(const at::Tensor& to, at::IntArrayRef to_strides, const at::Tensor& from,
                   at::IntArrayRef from_strides, at::IntArrayRef sizes);

}  // namespace ipex::runtime
