// Products of rows of uint8 numbers and a packed matrix of int8 numbers on AMX's tiles, where all rows have one scale and zero:
//
//   y[row][column] = (sum over k of row[k] * matrix[k][column] - offset[column]) * scale[column] + shift[column] + other * factor
//   result[row][column] = activation(steps(y)), as a float or rounded to a number again
//
// The sums are exact integers. The matrix lies in the panels of bytes_product.h.
#pragma once

#include "kernels/bytes_product.h"
#include "kernels/quantize.h"

namespace ipex::runtime {

// What rounds floats to numbers.
struct NumbersOfFloats {
  float inverse_scale, zero_point;
};

struct ByteTilesProduct {
  const uint8_t* rows;
  int64_t row_stride;  // bytes
  const uint32_t* words;
  int64_t depth;       // words of a column
  int64_t panel_size;  // words from one panel to the next
  // Of each column, and of what pads the last panel.
  const int32_t* offsets;
  const float *scales, *shifts;
  // Numbers of the result's shape, as it is dense; null for none. May be where the result is.
  const uint8_t* other;
  float factor;
  ElementwiseSteps steps;            // without a bias
  const SlowActivation* activation;  // of what becomes a number; null for none
  // One of them. Dense. With neither steps nor activation a float is a number already, when it is held between these two.
  float* floats;
  uint8_t* numbers;
  float least, most;
  NumbersOfFloats rounding;  // after steps or activation
};

struct ByteTilesKernels {
  // The panels in [first_panel, last_panel) for the rows in [first_row, last_row).
  void (*multiply)(const ByteTilesProduct&, int64_t first_row, int64_t last_row, int64_t first_panel,
                   int64_t last_panel);
};

}  // namespace ipex::runtime
