// Floats as 8-bit numbers and back, on plain pointers.
#pragma once

#include <cstdint>

namespace ipex::runtime {

// Functions that take longer than the rest of a layer of 8-bit numbers, where its result is rounded to 8 bits at once.
enum class SlowActivation { silu, sigmoid, gelu_erf, gelu_tanh };

struct QuantizeKernels {
  // Rows of `columns` floats: x * factors[column] * inverse_scale + zero_point, rounded to nearest, half to even, and
  // held between 0 and 255. NaN gives 0. `factors` may be null: then all are one.
  void (*quantize)(const float* x, int64_t rows, int64_t columns, const float* factors, float inverse_scale,
                   float zero_point, uint8_t* numbers);
  // The numbers of an activation's results, which are exact to less than a hundredth of a step. Null where that is no faster than
  // other kernels.
  void (*activate)(SlowActivation activation, const float* x, int64_t count, float inverse_scale, float zero_point,
                   uint8_t* numbers);
  // Numbers of one scale as numbers of another: as both of the others, one after the other.
  void (*requantize)(const uint8_t* numbers, int64_t count, float scale, float zero_point, float inverse_scale,
                     float result_zero_point, uint8_t* result);
  // (number - zero_point) * scale.
  void (*dequantize)(const uint8_t* numbers, int64_t count, float scale, float zero_point, float* x);
};

}  // namespace ipex::runtime
