#include "ops/product/product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "kernels/kernels.h"

namespace ipex::runtime {
namespace {

void multiply_few_rows(const RowsProduct& work) {
  const int64_t group = work.panel_columns * panels_of_a_group(work.row_count);
  const int64_t groups = at::divup(work.steps.columns, group);
  constexpr int64_t elements_worth_a_thread = 1 << 15;
  const int64_t grain = elements_worth_a_thread / (work.depth * group) + 1;
  const auto multiply = kernels().few_rows.multiply;
  if (groups <= grain) return multiply(work, 0, groups);
  at::parallel_for(0, groups, grain, [&](int64_t first, int64_t last) { multiply(work, first, last); });
}

constexpr int64_t rows_of_a_tile = 6;

// How many parts the rows are cut into, and how many the panels: for every thread one of each.
struct Parts {
  int64_t rows, panels;
};

// The thread that has most to multiply and to read shall have least.
Parts parts_for(int64_t threads, int64_t row_tiles, int64_t panels, int64_t panel_columns) {
  constexpr int64_t products_worth_a_read = 8;  // about, from the third cache
  Parts best{1, 1};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t panel_parts = 1; panel_parts <= std::min(threads, panels); ++panel_parts) {
    const int64_t row_parts = std::min(threads / panel_parts, row_tiles);
    const int64_t rows = at::divup(row_tiles, row_parts) * rows_of_a_tile;
    const int64_t columns = at::divup(panels, panel_parts) * panel_columns;
    const int64_t cost = rows * columns + products_worth_a_read * (rows + columns);
    if (cost < least) {
      best = {row_parts, panel_parts};
      least = cost;
    }
  }
  return best;
}

constexpr int64_t least_panels_of_a_piece = 2, pieces_of_a_part = 4;

void multiply_many_rows(const RowsProduct& work) {
  const auto multiply = kernels().many_rows.multiply;
  const int64_t row_count = work.row_count, panel_count = at::divup(work.steps.columns, work.panel_columns);
  constexpr int64_t products_worth_a_thread = 1 << 18;
  const int64_t threads = std::min<int64_t>(at::get_num_threads(),
                                            row_count * work.depth * work.steps.columns / products_worth_a_thread + 1);
  if (threads == 1) return multiply(work, 0, row_count, 0, panel_count);
  const int64_t tiles = at::divup(row_count, rows_of_a_tile);
  const Parts parts = parts_for(threads, tiles, panel_count, work.panel_columns);
  const auto first_row = [&](int64_t part) { return std::min(tiles * part / parts.rows * rows_of_a_tile, row_count); };
  // Every thread takes pieces of its rows, and then of the others': one that is held up has less to do.
  const int64_t pieces =
      std::clamp(panel_count / least_panels_of_a_piece, parts.panels, parts.panels * pieces_of_a_part);
  std::vector<std::atomic<int64_t>> next(parts.rows);
  at::parallel_for(0, parts.rows * parts.panels, /*grain_size=*/1, [&](int64_t first, int64_t) {
    for (int64_t turn = 0; turn < parts.rows; ++turn) {
      const int64_t i = (first / parts.panels + turn) % parts.rows;
      for (int64_t j = next[i]++; j < pieces; j = next[i]++) {
        multiply(work, first_row(i), first_row(i + 1), panel_count * j / pieces, panel_count * (j + 1) / pieces);
      }
    }
  });
}

}  // namespace

bool can_multiply(const Panels& panels) {
  const int64_t width = kernels().few_rows.width;
  return panels.columns % width == 0 && panels.columns / width <= most_vectors_of_a_panel;
}

void multiply(const float* rows, int64_t row_count, int64_t depth, const Panels& panels, const ElementwiseSteps& steps,
              float* result) {
  const RowsProduct work{.rows = rows,
                         .row_count = row_count,
                         .depth = depth,
                         .panels = panels.data,
                         .panel_columns = panels.columns,
                         .panel_size = panels.size,
                         .steps = steps,
                         .result = result};
  row_count <= most_few_rows ? multiply_few_rows(work) : multiply_many_rows(work);
}

}  // namespace ipex::runtime
