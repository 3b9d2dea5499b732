// Products (rows_product.h) of many rows. Here arithmetic is what counts: a tile of sums stays in registers, the pieces of
// rows and matrix that it is made of in the caches, and what comes next is fetched ahead.
#pragma once

#include <cstdint>

#include "kernels/rows_product.h"

namespace ipex::runtime {

struct ManyRowsKernels {
  // The panels in [first_panel, last_panel) for the rows in [first_row, last_row). What is computed for a row does not
  // depend on the others.
  void (*multiply)(const RowsProduct&, int64_t first_row, int64_t last_row, int64_t first_panel, int64_t last_panel);
  // to = row * gates, element by element.
  void (*gate)(const float* row, const float* gates, int64_t count, float* to);
  // A panel of pairs (numbers.h) as floats: of each row of `columns` words two rows.
  void (*widen)(const uint32_t* words, int64_t rows, int64_t columns, float* floats);
};

}  // namespace ipex::runtime
