// A few rows of float32 numbers times a matrix, and elementwise steps on the sums, on plain pointers. The matrix lies in
// panels: some columns side by side, for the whole depth, as oneDNN packs the weights of a matmul. So it is read once,
// from one end to the other, for all rows.
//
//   panels[panel][depth][panel_columns]    a last panel that is not full, and a depth, may be padded with anything
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace ipex::runtime {

// In registers.
constexpr int64_t most_vectors_of_a_panel = 4;
// With more, arithmetic is all that counts.
constexpr int64_t most_few_rows = 16;

// Panels are computed in groups of this many, always in the same ones, so that threads do not change a result.
constexpr int64_t panels_of_a_group(int64_t rows) { return rows == 1 ? 4 : 2; }

struct FewRowsProduct {
  const float* rows;  // dense
  int64_t row_count;  // 1 to most_few_rows
  int64_t depth;
  const float* panels;
  int64_t panel_columns;   // a multiple of the register's width
  int64_t panel_size;      // elements from one panel to the next
  ElementwiseSteps steps;  // what becomes of the sums
  float* result;           // dense
};

struct FewRowsKernels {
  int64_t width;
  void (*multiply)(const FewRowsProduct&, int64_t first_group, int64_t last_group);
};

}  // namespace ipex::runtime
