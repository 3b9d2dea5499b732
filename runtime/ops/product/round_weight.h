// A float32 weight, rounded to codes with scales, and perhaps offsets, of groups of a row's numbers.
#pragma once

#include "ops/product/low_bit_linear.h"

namespace ipex::runtime {

struct WeightInCodes {
  at::Tensor codes;    // [outputs, inputs]: 8-bit floats or bfloat16, else int8, those of 4 bits one in each
  at::Tensor scales;   // float32 [outputs, groups]
  at::Tensor offsets;  // the same, or undefined
  int64_t group_size;
};

// `group_size` is a positive number, or 0 for whole rows. Symmetric codes have no offsets; floats and values of a table are symmetric.
WeightInCodes round_weight(const char* name, const at::Tensor& weight, const LowBitFormat& format, int64_t group_size,
                           bool symmetric);

// The same, as a linear takes it.
LowBitSpec quantized(const char* name, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                     std::vector<std::string> post_ops, const LowBitFormat& format, int64_t group_size, bool symmetric);

}  // namespace ipex::runtime
