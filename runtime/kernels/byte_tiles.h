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

// What a row is made of: `count` runs of as many words, each of whole tiles, which begin so many bytes behind the row.
// Of any `row_width` rows the first `result_width` are rows of the result, and the others nobody wants: so the windows of an
// image are rows at one distance, where those that reach into the next line of pixels are dropped.
struct RowRuns {
  const int64_t* begins;
  int64_t count, row_width, result_width;
};

// A run of so many bytes with what fills its tiles up: they have as many words, 16 at most.
constexpr int64_t bytes_of_whole_tiles(int64_t bytes) {
  const int64_t words = (bytes + bytes_of_a_word - 1) / bytes_of_a_word, tiles = (words + 15) / 16;
  return (words + tiles - 1) / tiles * tiles * bytes_of_a_word;
}

struct ByteTilesProduct {
  const uint8_t* rows;
  int64_t row_stride;   // bytes
  const RowRuns* runs;  // null where a row is one run, of any number of words, and a row of the result
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
