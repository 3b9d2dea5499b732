// Rows of float32 numbers times a matrix, and elementwise steps on the sums, on plain pointers. The matrix lies in panels:
// some columns side by side, for the whole depth, as oneDNN packs the weights of a matmul.
//
//   panels[panel][depth][panel_columns]    a last panel that is not full, and a depth, may be padded with anything
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace ipex::runtime {

struct RowsProduct {
  const float* rows;  // dense
  int64_t row_count;
  int64_t depth;
  const float* panels;
  int64_t panel_columns;   // a multiple of the register's width
  int64_t panel_size;      // elements from one panel to the next
  ElementwiseSteps steps;  // what becomes of the sums
  float* result;           // dense; may be where the operand of the first step is, if that adds a full one
};

}  // namespace ipex::runtime
