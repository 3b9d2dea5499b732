// Prints how products are cut: "few|many|winograd rows columns panel_columns threads efficiency", a line for each, after checking that
// every column and row has one thread. Read by test_product_cut.py, which compiles it with ops/product/product_cut.cpp.
#include "ops/product/product_cut.h"

#include "ops/convolution/winograd_cut.h"

#include <cstdio>

using namespace ipex::runtime;

namespace {

constexpr int64_t width = 16;

// Whether shares follow one another from 0 to `end`.
template <typename First>
bool covers(int64_t parts, int64_t end, First&& first) {
  bool right = first(0) == 0 && first(parts) == end;
  for (int64_t i = 0; i < parts; ++i) right &= first(i) <= first(i + 1);
  return right;
}

}  // namespace

int main() {
  for (const int64_t columns :
       {64, 96, 128, 192, 256, 320, 512, 768, 1000, 1024, 1536, 2304, 3072, 4096, 11008, 50257}) {
    for (const int64_t panel_columns : {16, 48, 64}) {
      for (int64_t threads = 1; threads <= 64; ++threads) {
        for (const int64_t rows : {1, 2, 6}) {
          const ProductSize size{rows, 768, columns, panel_columns};
          const ColumnCut cut = column_cut(size, width, threads);
          if (!covers(cut.threads, cut.vectors, [&](int64_t i) { return cut.first(i); })) return 1;
          int64_t largest = 0;
          for (int64_t i = 0; i < cut.threads; ++i) largest = std::max(largest, cut.first(i + 1) - cut.first(i));
          if (largest > cut.largest_share()) return 2;
          const double share = cut.efficiency() * static_cast<double>(cut.threads) / static_cast<double>(threads);
          std::printf("few %ld %ld %ld %ld %.4f\n", rows, columns, panel_columns, threads, share);
        }
        for (const int64_t rows : {17, 49, 64, 128, 197, 512, 3136}) {
          const ProductSize size{rows, 768, columns, panel_columns};
          const ProductParts parts = parts_of(size, threads);
          if (parts.rows * parts.panels > threads) return 3;
          if (!covers(parts.rows, rows, [&](int64_t i) { return first_row_of_part(size, parts, i); })) return 4;
          std::printf("many %ld %ld %ld %ld %.4f\n", rows, columns, panel_columns, threads,
                      efficiency(size, parts, threads));
        }
      }
    }
  }
  constexpr int64_t panel_columns = 32;
  for (const int64_t side : {14, 28, 56}) {
    for (const int64_t columns : {48, 64, 128, 256, 512}) {
      for (int64_t threads = 1; threads <= 64; ++threads) {
        const int64_t along = TilesOfSide(side, /*dilation=*/1).count(), tiles = along * along,
                      panels = parts_that_cover(columns, panel_columns);
        const ProductParts parts = winograd_parts(tiles, columns, panel_columns, threads);
        if (parts.rows * parts.panels > threads || parts.rows > tiles || parts.panels > panels) return 5;
        const int64_t share = parts_that_cover(tiles, parts.rows) * parts_that_cover(panels, parts.panels);
        const double busy = static_cast<double>(tiles * panels) / static_cast<double>(share * threads);
        std::printf("winograd %ld %ld %ld %ld %.4f\n", side, columns, panel_columns, threads, busy);
      }
    }
  }
  return 0;
}
