// Transposing tables of numbers, on plain pointers.
#pragma once

#include <cstdint>

namespace ipex::runtime {

struct TransposeKernels {
  // The rows of x, `x_pitch` elements apart, become the columns of y, whose rows lie `y_pitch` apart.
  void (*transpose)(const float* x, int64_t rows, int64_t columns, int64_t x_pitch, float* y, int64_t y_pitch);
};

}  // namespace ipex::runtime
