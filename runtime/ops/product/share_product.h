// How the threads of a call share a product of many rows and a matrix in panels: as product_cut.h cuts it.
#pragma once

#include <atomic>
#include <vector>

#include "ops/product/product_cut.h"
#include "threads/parallel.h"
#include "threads/thread_count.h"

namespace ipex::runtime {

// `prepare(first_row, last_row)` is called by a thread for the rows of which it takes pieces, and gives a function that
// multiplies a piece: (first_row, last_row, first_panel, last_panel).
template <typename Prepare>
void share_rows_and_panels(const ProductSize& size, Prepare&& prepare) {
  const int64_t panel_count = at::divup(size.columns, size.panel_columns);
  const ProductParts parts = parts_of(size, thread_count());
  if (parts.rows * parts.panels == 1) return prepare(0, size.rows)(0, size.rows, 0, panel_count);
  const auto first_row = [&](int64_t part) { return first_row_of_part(size, parts, part); };
  // Every thread takes pieces of its own rows, and then of the others' rows.
  const int64_t pieces = parts.panels * parts.pieces_of_a_part;
  std::vector<std::atomic<int64_t>> next(parts.rows);
  parallel_for(parts.rows * parts.panels, /*grain_size=*/1, [&](int64_t first, int64_t) {
    for (int64_t turn = 0; turn < parts.rows; ++turn) {
      const int64_t i = (first / parts.panels + turn) % parts.rows;
      int64_t j = next[i]++;
      if (j >= pieces) continue;
      const auto multiply = prepare(first_row(i), first_row(i + 1));
      for (; j < pieces; j = next[i]++) {
        multiply(first_row(i), first_row(i + 1), panel_count * j / pieces, panel_count * (j + 1) / pieces);
      }
    }
  });
}

}  // namespace ipex::runtime
