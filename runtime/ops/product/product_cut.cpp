#include "ops/product/product_cut.h"

#include <limits>

#include "kernels/few_rows.h"

namespace ipex::runtime {
namespace {

// What the kernel takes for so many rows, in rows of full tiles. It reads the columns once for each tile, of at most six
// rows, and below five that takes longer than multiplying.
int64_t cost_of_rows(int64_t rows) { return std::max(rows, 5 * parts_that_cover(rows, 6)); }

// As many pieces as do not make the largest share larger.
int64_t pieces_of_a_part(int64_t panels, int64_t parts) {
  constexpr int64_t most_pieces = 4, least_panels_of_a_piece = 2;
  for (int64_t pieces = most_pieces; pieces > 1; --pieces) {
    const bool are_large = panels >= parts * pieces * least_panels_of_a_piece;
    if (are_large && parts_that_cover(panels, parts * pieces) * pieces <= parts_that_cover(panels, parts))
      return pieces;
  }
  return 1;
}

}  // namespace

ColumnCut column_cut(const ProductSize& size, int64_t width, int64_t threads) {
  constexpr double worth_a_shorter_stream = 0.97;
  const int64_t vectors = parts_that_cover(size.columns, width), of_a_panel = size.panel_columns / width;
  const auto cut_by = [&](int64_t unit) { return ColumnCut{vectors, unit, std::min(threads, vectors)}; };
  ColumnCut best = cut_by(1);
  for (int64_t unit = panels_of_a_group(size.rows) * of_a_panel; unit > 1; unit /= 2) {
    const ColumnCut cut = cut_by(unit);
    if (worth_a_shorter_stream * static_cast<double>(cut.largest_share()) <=
        static_cast<double>(best.largest_share())) {
      return cut;
    }
  }
  return best;
}

// Those for which the busiest thread has least to multiply and to read. What the op before wrote lies in other cores' caches,
// but for a thread's equal share of the rows.
ProductParts parts_of(const ProductSize& size, int64_t threads) {
  constexpr int64_t products_worth_a_thread = 1 << 18;
  constexpr int64_t products_worth_a_read = 8, products_worth_a_read_from_others = 40;  // about
  const int64_t most = std::min(threads, size.rows * size.depth * size.columns / products_worth_a_thread + 1);
  const int64_t panels = parts_that_cover(size.columns, size.panel_columns);
  ProductParts best{1, 1, 1};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t panel_parts = 1; panel_parts <= std::min(most, panels); ++panel_parts) {
    const int64_t row_parts = std::min(most / panel_parts, size.rows);
    const int64_t rows = parts_that_cover(size.rows, row_parts);
    const int64_t columns = std::min(parts_that_cover(panels, panel_parts) * size.panel_columns, size.columns);
    const int64_t cost = cost_of_rows(rows) * columns + products_worth_a_read * (rows + columns) +
                         products_worth_a_read_from_others * (rows - size.rows / most);
    if (cost < least) {
      best = {row_parts, panel_parts, pieces_of_a_part(panels, panel_parts)};
      least = cost;
    }
  }
  return best;
}

double efficiency(const ProductSize& size, const ProductParts& parts, int64_t threads) {
  const int64_t panels = parts_that_cover(size.columns, size.panel_columns);
  const int64_t of_a_piece = parts_that_cover(panels, parts.panels * parts.pieces_of_a_part);
  const int64_t columns = std::min(of_a_piece * parts.pieces_of_a_part * size.panel_columns, size.columns);
  const int64_t share = parts_that_cover(size.rows, parts.rows) * columns;
  return static_cast<double>(size.rows * size.columns) / static_cast<double>(share * threads);
}

}  // namespace ipex::runtime
