// Giving a tensor the exact strides of a memory format, and images of any rank the shape that has one.
#pragma once

#include <ATen/ATen.h>

#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/copy_elements.h"

namespace ipex::runtime {

// The memory of a plain tensor, whose gradient nobody wants, in other sizes.
inline at::Tensor view_of_memory(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  const at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, tensor.storage_offset());
  return view;
}

// The tensor with a dimension of one before this one, or without that. As aten's, without the way through its dispatcher,
// which takes as long as a small convolution.
inline at::Tensor with_one_more(const at::Tensor& tensor, int64_t dimension) {
  if (!is_plain_cpu(tensor) || wants_gradient(tensor)) return tensor.unsqueeze(dimension);
  at::DimVector sizes(tensor.sizes()), strides(tensor.strides());
  const int64_t stride = dimension < tensor.dim() ? sizes[dimension] * strides[dimension] : 1;
  sizes.insert(sizes.begin() + dimension, 1);
  strides.insert(strides.begin() + dimension, stride);
  return view_of_memory(tensor, sizes, strides);
}

inline at::Tensor with_one_less(const at::Tensor& tensor, int64_t dimension) {
  if (!is_plain_cpu(tensor) || wants_gradient(tensor)) return tensor.squeeze(dimension);
  at::DimVector sizes(tensor.sizes()), strides(tensor.strides());
  sizes.erase(sizes.begin() + dimension);
  strides.erase(strides.begin() + dimension);
  return view_of_memory(tensor, sizes, strides);
}

// The image, of `spatial_rank` dimensions, with a batch of one where it has no batch, and of one row where it is 1-d: the
// shape in which aten computes convolutions and decides about memory formats.
inline at::Tensor as_batched_image(const at::Tensor& image, int64_t spatial_rank) {
  const at::Tensor batched = image.dim() == spatial_rank + 2 ? image : with_one_more(image, 0);
  return spatial_rank == 1 ? with_one_more(batched, 2) : batched;
}

// The way back, to an image that looks like `original`.
inline at::Tensor as_original_image(const at::Tensor& batched, const at::Tensor& original, int64_t spatial_rank) {
  const at::Tensor image = spatial_rank == 1 ? with_one_less(batched, 2) : batched;
  return original.dim() == spatial_rank + 2 ? image : with_one_less(image, 0);
}

inline at::MemoryFormat channels_last_of(int64_t spatial_rank) {
  return spatial_rank == 3 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
}

// The format of what aten makes of tensors that it joins.
inline at::MemoryFormat common_format(at::TensorList tensors) {
  if (tensors.empty()) return at::MemoryFormat::Contiguous;
  const at::MemoryFormat format = tensors.front().suggest_memory_format();
  for (const at::Tensor& tensor : tensors) {
    if (tensor.suggest_memory_format() != format) return at::MemoryFormat::Contiguous;
  }
  return format;
}

// Whether an image is channels-last, its pixels maybe further apart than they have channels: as those of a piece are.
inline bool lies_in_pixels(const at::Tensor& image) {
  if (image.dim() != 4 || image.size(3) == 1 || image.stride(1) != 1 || image.stride(3) < image.size(1)) return false;
  const int64_t row = image.size(3) * image.stride(3);
  return (image.size(2) == 1 || image.stride(2) == row) &&
         (image.size(0) == 1 || image.stride(0) == image.size(2) * row);
}

// Of an image that lies so, or is dense and channels-last.
inline int64_t pixel_stride(const at::Tensor& image) {
  return image.dim() != 4 || image.size(3) == 1 ? image.size(1) : image.stride(3);
}

// As tensor.contiguous(format); the copy, where there is one, lies where results do.
inline at::Tensor contiguous_result(const at::Tensor& tensor, at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  if (tensor.is_contiguous(format)) return tensor;
  if (!is_plain_cpu(tensor) || wants_gradient(tensor)) return tensor.contiguous(format);
  const at::Tensor result = empty_result(tensor.sizes(), tensor.options().memory_format(format));
  copy_elements(result, tensor);
  return result;
}

// The tensor in another dtype, where results lie. What is dense keeps its strides.
inline at::Tensor converted(const at::Tensor& tensor, at::ScalarType dtype) {
  if (!tensor.is_non_overlapping_and_dense()) return tensor.to(dtype);
  const at::Tensor memory = empty_result({tensor.numel()}, tensor.options().dtype(dtype));
  const at::Tensor result = memory.as_strided(tensor.sizes(), tensor.strides());
  return result.copy_(tensor);
}

// Like contiguous_result, but the strides of dimensions of size one are right too: that leaves them as they are, and a
// caller who compares strides with eager's would see the difference.
inline at::Tensor with_format(const at::Tensor& tensor, at::MemoryFormat format) {
  const at::Tensor laid_out = contiguous_result(tensor, format);
  const at::Tensor wanted = at::empty(tensor.sizes(), at::TensorOptions(at::kMeta).memory_format(format));
  return laid_out.strides() == wanted.strides() ? laid_out : laid_out.as_strided(wanted.sizes(), wanted.strides());
}

}  // namespace ipex::runtime
