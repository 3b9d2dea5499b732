// Many rows of float32 numbers times a matrix in panels, and elementwise steps on the sums, on plain pointers. Here
// arithmetic is what counts: a tile of sums stays in registers, the pieces of rows and matrix that it is made of in the
// caches, and what comes next is fetched ahead.
//
//   panels[panel][depth][panel_columns]    as in few_rows.h
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace ipex::runtime {

struct ManyRowsProduct {
  const float* rows;  // dense
  int64_t row_count;
  int64_t depth;
  const float* panels;
  int64_t panel_columns;   // a multiple of the register's width
  int64_t panel_size;      // elements from one panel to the next
  ElementwiseSteps steps;  // what becomes of the sums
  float* result;           // dense; may be where the operand of the first step is, if that adds a full one
};

struct ManyRowsKernels {
  // The panels in [first_panel, last_panel) for the rows in [first_row, last_row). What is computed for a row does not
  // depend on the others.
  void (*multiply)(const ManyRowsProduct&, int64_t first_row, int64_t last_row, int64_t first_panel,
                   int64_t last_panel);
};

}  // namespace ipex::runtime
