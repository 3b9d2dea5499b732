#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// 0.5 * x * (1 + erf(x / sqrt(2))), as models spell gelu.
at::Tensor erf_gelu(const at::Tensor& x);

}  // namespace ipex::runtime
