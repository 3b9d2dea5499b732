// How a convolution by Winograd's way is cut for a number of threads: into parts of its tiles, and of its panels of columns. Every
// part of the columns takes its tiles' pixels into the new basis once more, but reads its own columns of the weight only, which
// is four times as large as the plain one. Computed from sizes alone, as ops/product/product_cut.h.
#pragma once

#include "kernels/winograd.h"
#include "ops/product/product_cut.h"

namespace ipex::runtime {

inline ProductParts winograd_parts(int64_t tiles, int64_t columns, int64_t panel_columns, int64_t threads) {
  // For each channel, in products: pixels of a tile in the new basis, and a number of the weight from the third cache.
  constexpr int64_t products_worth_a_tile = 1024, products_worth_a_read = 8;
  const int64_t panels = parts_that_cover(columns, panel_columns);
  ProductParts best{1, 1, 1};
  int64_t least = INT64_MAX;
  for (int64_t panel_parts = 1; panel_parts <= std::min(threads, panels); ++panel_parts) {
    const int64_t tile_parts = std::min(threads / panel_parts, tiles);
    const int64_t own_tiles = parts_that_cover(tiles, tile_parts);
    const int64_t products = places_of_a_tile * parts_that_cover(panels, panel_parts) * panel_columns;
    const int64_t cost = own_tiles * (products_worth_a_tile + products) + products_worth_a_read * products;
    if (cost < least) {
      best = {tile_parts, panel_parts, 1};
      least = cost;
    }
  }
  return best;
}

}  // namespace ipex::runtime
