// Products (rows_product.h) of a few rows: the matrix is read once, from one end to the other, for all of them.
#pragma once

#include <cstdint>

#include "kernels/rows_product.h"

namespace ipex::runtime {

// In registers.
constexpr int64_t most_vectors_of_a_panel = 4;
// With more, many_rows.h is faster, which fetches a panel ahead.
constexpr int64_t most_few_rows = 6;

// Of whole panels, so many are computed as a group.
constexpr int64_t panels_of_a_group(int64_t rows) { return rows == 1 ? 4 : 2; }

struct FewRowsKernels {
  int64_t width;
  // The columns of some vectors, `width` columns each, counted from the first column: [first_vector, last_vector). At most
  // most_few_rows rows. What is computed for a column does not depend on the others.
  void (*multiply)(const RowsProduct&, int64_t first_vector, int64_t last_vector);
};

}  // namespace ipex::runtime
