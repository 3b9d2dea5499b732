// How precise float32 products have to be.
#pragma once

#include <ipex/export.h>

#include <cstdint>

namespace ipex {

// What a convolution, linear or matmul of float32 tensors may do inside. Sums, post-ops and results are float32 in every
// mode. A mode permits: where nothing is gained by rounding, products are those of float32 numbers in all of them.
// The numbers are written into saved models.
enum class FP32MathMode : int8_t {
  FP32 = 0,  // products of float32 numbers
  TF32 = 1,  // a format of GPUs; refused here
  BF32 = 2,  // factors may be rounded to bfloat16: 8 significant bits
  // The smallest and the largest of them.
  MATH_MODE_MIN = FP32,
  MATH_MODE_MAX = BF32,
};

// The mode of the process, which every model follows, from its next call on, that was not optimised with a mode of its
// own. May be called at any time and from any thread. False, and nothing is changed, for a mode that no CPU has: TF32.
IPEX_API bool set_fp32_math_mode(FP32MathMode mode);

// Starts as what the environment variable IPEX_FP32_MATH_MODE says when the mode is first asked for, FP32 without it.
// Throws c10::Error when that is neither FP32 nor BF32.
IPEX_API FP32MathMode get_fp32_math_mode();

// "FP32", "TF32", "BF32".
IPEX_API const char* to_string(FP32MathMode mode);

}  // namespace ipex
