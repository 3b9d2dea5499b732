// The borders of what a float32 model computes in 16 bits.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// On the way in: float32, bfloat16 and float16 become `dtype`, others stay.
at::Tensor lower_precision(const at::Tensor& x, at::ScalarType dtype);

// On the way out: bfloat16 and float16 become float32, others stay.
at::Tensor restore_precision(const at::Tensor& y);

}  // namespace ipex::runtime
