// Products of rows of uint8 numbers and a packed matrix of int8 numbers. The sums are exact integers; scales make floats of
// them at the end:
//
//   result[row][column] = steps((sum over k of (row[k] - row.zero) * matrix[k][column]) * row.scale * column_scale[column])
//
// A word is four neighbours of a column, or of a row. The matrix lies in panels (rows_product.h):
//
//   words[panel][words of a column][panel_columns]    with zeros beyond the depth and beyond the last column
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace ipex::runtime {

constexpr int64_t bytes_of_a_word = 4;
// A sum of so many products of 255 and -128 fits 32 bits.
constexpr int64_t most_depth_of_bytes = 1 << 16;

// A number x of a row is stored as round(x / scale) + zero.
struct RowScale {
  float scale;
  int32_t zero;
};

struct BytesProduct {
  const uint8_t* rows;
  int64_t row_stride;  // bytes
  const RowScale* row_scales;
  int64_t first_row;  // of the result: that of `rows` and `row_scales`
  const uint32_t* words;
  int64_t depth;       // words of a column
  int64_t panel_size;  // words from one panel to the next
  // Of each column, and of what pads the last panel.
  const float* column_scales;
  const int32_t* column_sums;  // of the matrix
  ElementwiseSteps steps;
  // May be where the operand of the first step is, if that adds one of the result's shape.
  float* result;
  int64_t result_stride;
};

struct BytesProductKernels {
  int64_t panel_columns;
  // Quantises a row of floats: its smallest number, or 0, becomes 0, and its largest, or 0, becomes 255. Zero is exact.
  // Writes whole registers. A row with NaN or infinity gets NaN for a scale, and so is NaN in the result.
  RowScale (*quantize)(const float* from, int64_t count, uint8_t* to);
  // The panels in [first_panel, last_panel) for the rows in [first_row, last_row). What is computed for a row does not
  // depend on the others.
  void (*multiply)(const BytesProduct&, int64_t first_row, int64_t last_row, int64_t first_panel, int64_t last_panel);
};

// The bytes of a row in memory: whole registers, and rows that don't all begin in the same lines of the first cache.
constexpr int64_t stride_of_bytes(int64_t count) { return (count + 63) / 64 * 64 + 64; }

}  // namespace ipex::runtime
