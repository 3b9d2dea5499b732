// Memory for results with the strides of another tensor.
#pragma once

#include <ATen/ATen.h>

#include "memory/result_memory.h"

namespace ipex::runtime {

// As at::empty_like, of a tensor on the CPU.
inline at::Tensor empty_like_result(const at::Tensor& x) {
  if (!x.is_non_overlapping_and_dense()) return at::empty_like(x);
  at::Tensor result = empty_result({x.numel()}, at::TensorOptions(x.scalar_type()));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), x.strides());
  return result;
}

}  // namespace ipex::runtime
