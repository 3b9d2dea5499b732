// Giving a tensor the exact strides of a memory format, and images of any rank the shape that has one.
#pragma once

#include <ATen/ATen.h>

namespace ipex::runtime {

// The image, of `spatial_rank` dimensions, with a batch of one where it has no batch, and of one row where it is 1-d: the
// shape in which aten computes convolutions and decides about memory formats.
inline at::Tensor as_batched_image(const at::Tensor& image, int64_t spatial_rank) {
  const at::Tensor batched = image.dim() == spatial_rank + 2 ? image : image.unsqueeze(0);
  return spatial_rank == 1 ? batched.unsqueeze(2) : batched;
}

// The way back, to an image that looks like `original`.
inline at::Tensor as_original_image(const at::Tensor& batched, const at::Tensor& original, int64_t spatial_rank) {
  const at::Tensor image = spatial_rank == 1 ? batched.squeeze(2) : batched;
  return original.dim() == spatial_rank + 2 ? image : image.squeeze(0);
}

inline at::MemoryFormat channels_last_of(int64_t spatial_rank) {
  return spatial_rank == 3 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
}

// Like tensor.contiguous(format), but the strides of dimensions of size one are right too: contiguous() leaves them as
// they are, and a caller who compares strides with eager's would see the difference.
inline at::Tensor with_format(const at::Tensor& tensor, at::MemoryFormat format) {
  const at::Tensor laid_out = tensor.contiguous(format);
  const at::Tensor wanted = at::empty(tensor.sizes(), at::TensorOptions(at::kMeta).memory_format(format));
  return laid_out.strides() == wanted.strides() ? laid_out : laid_out.as_strided(wanted.sizes(), wanted.strides());
}

}  // namespace ipex::runtime
