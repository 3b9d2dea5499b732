// A copy of a tensor whose dimensions lie in another order.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// As to.copy_(from), of tensors of one dtype and shape that is_plain_cpu holds of; nobody else has `to` yet, which is dense.
void copy_reordered(const at::Tensor& from, const at::Tensor& to);

}  // namespace ipex::runtime
