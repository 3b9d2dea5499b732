// Matrices transposed, on plain pointers.
#pragma once

#include <cstdint>

namespace ipex::runtime {

struct TransposeKernels {
  // y[j * y_stride + i] = x[i * x_stride + j] for `rows` of i and `columns` of j, numbers of 32 and of 16 bits.
  void (*words)(const uint32_t* x, int64_t rows, int64_t columns, int64_t x_stride, uint32_t* y, int64_t y_stride);
  void (*halves)(const uint16_t* x, int64_t rows, int64_t columns, int64_t x_stride, uint16_t* y, int64_t y_stride);
};

}  // namespace ipex::runtime
