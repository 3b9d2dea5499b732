#include "ops/product/share_product.h"

#include <limits>

#include "threads/thread_count.h"

namespace ipex::runtime {

// Those for which the busiest thread has least to multiply and to read.
ProductParts parts_of(const ProductSize& size) {
  constexpr int64_t products_worth_a_thread = 1 << 18;
  const int64_t threads =
      std::min<int64_t>(thread_count(), size.rows * size.depth * size.columns / products_worth_a_thread + 1);
  const int64_t row_tiles = at::divup(size.rows, rows_of_a_shared_tile);
  const int64_t panels = at::divup(size.columns, size.panel_columns);
  constexpr int64_t products_worth_a_read = 8;  // about, from the third cache
  ProductParts best{1, 1};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t panel_parts = 1; panel_parts <= std::min(threads, panels); ++panel_parts) {
    const int64_t row_parts = std::min(threads / panel_parts, row_tiles);
    const int64_t rows = at::divup(row_tiles, row_parts) * rows_of_a_shared_tile;
    const int64_t columns = at::divup(panels, panel_parts) * size.panel_columns;
    const int64_t cost = rows * columns + products_worth_a_read * (rows + columns);
    if (cost < least) {
      best = {row_parts, panel_parts};
      least = cost;
    }
  }
  return best;
}

}  // namespace ipex::runtime
