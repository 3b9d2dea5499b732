// How the threads of a call share a product of many rows and a matrix in panels (kernels/rows_product.h).
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace ipex::runtime {

struct ProductSize {
  int64_t rows, depth, columns, panel_columns;
};

// How many parts the rows are cut into, and how many the panels. Each thread has one part of each.
struct ProductParts {
  int64_t rows, panels;
};

// The parts, and so the threads, that the product is worth.
ProductParts parts_of(const ProductSize& size);

// Parts of the rows begin at such rows.
constexpr int64_t rows_of_a_shared_tile = 6;

// `prepare(first_row, last_row)` is called by a thread for the rows of which it takes pieces, and gives a function that
// multiplies a piece: (first_row, last_row, first_panel, last_panel).
template <typename Prepare>
void share_rows_and_panels(const ProductSize& size, Prepare&& prepare) {
  constexpr int64_t least_panels_of_a_piece = 2, pieces_of_a_part = 4;
  const int64_t row_count = size.rows, panel_count = at::divup(size.columns, size.panel_columns);
  const ProductParts parts = parts_of(size);
  if (parts.rows * parts.panels == 1) return prepare(0, row_count)(0, row_count, 0, panel_count);
  const int64_t tiles = at::divup(row_count, rows_of_a_shared_tile);
  const auto first_row = [&](int64_t part) {
    return std::min(tiles * part / parts.rows * rows_of_a_shared_tile, row_count);
  };
  // Every thread takes pieces of its own rows, and then of the others' rows: a thread that is held up does less.
  const int64_t pieces =
      std::clamp(panel_count / least_panels_of_a_piece, parts.panels, parts.panels * pieces_of_a_part);
  std::vector<std::atomic<int64_t>> next(parts.rows);
  at::parallel_for(0, parts.rows * parts.panels, /*grain_size=*/1, [&](int64_t first, int64_t) {
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
