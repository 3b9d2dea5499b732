// Products (rows_product.h) of a few rows: the matrix is read once, from one end to the other, for all of them.
#pragma once

#include <cstdint>

#include "kernels/rows_product.h"

namespace ipex::runtime {

// In registers.
constexpr int64_t most_vectors_of_a_panel = 4;
// With more, many_rows.h is faster, which fetches a panel ahead.
constexpr int64_t most_few_rows = 6;

// Panels are computed in groups of this many, always in the same ones, so that threads do not change a result.
constexpr int64_t panels_of_a_group(int64_t rows) { return rows == 1 ? 4 : 2; }

struct FewRowsKernels {
  int64_t width;
  // At most most_few_rows of them.
  void (*multiply)(const RowsProduct&, int64_t first_group, int64_t last_group);
};

}  // namespace ipex::runtime
