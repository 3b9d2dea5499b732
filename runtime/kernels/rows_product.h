// Rows times a packed matrix, and elementwise steps on the sums, on plain pointers. The matrix lies in panels: some columns
// side by side, for the whole depth, as oneDNN packs the weights of a matmul.
//
//   words[panel][words of a column][panel_columns]    the last panel, and each panel's end, may be padded with anything
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"
#include "kernels/numbers.h"

namespace ipex::runtime {

template <typename Word>
struct RowsProductOf {
  const Word* rows;
  int64_t row_stride;  // words from one row to the next
  int64_t row_count;
  PackedMatrix matrix;
  int64_t panel_columns;   // a multiple of the register's width
  int64_t panel_size;      // words from one panel to the next
  ElementwiseSteps steps;  // what becomes of the sums; their operands of the result's shape are dense
  // May be where the operand of the first step is, if that adds one of the result's shape and the result is dense.
  float* result;
  int64_t result_stride;  // elements from one row to the next
};

// Rows of floats.
using RowsProduct = RowsProductOf<float>;

}  // namespace ipex::runtime
