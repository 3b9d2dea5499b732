// Giving a tensor the exact strides of a memory format.
#pragma once

#include <ATen/ATen.h>

namespace ipex::runtime {

// Like tensor.contiguous(format), but the strides of dimensions of size one are right too: contiguous() leaves them as
// they are, and a caller who compares strides with eager's would see the difference.
inline at::Tensor with_format(const at::Tensor& tensor, at::MemoryFormat format) {
  const at::Tensor laid_out = tensor.contiguous(format);
  const at::Tensor wanted = at::empty(tensor.sizes(), at::TensorOptions(at::kMeta).memory_format(format));
  return laid_out.strides() == wanted.strides() ? laid_out : laid_out.as_strided(wanted.sizes(), wanted.strides());
}

}  // namespace ipex::runtime
