#include "ops/product/product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "threads/thread_count.h"

namespace ipex::runtime {
namespace {

void share_groups(const RowsProduct& work) {
  const int64_t group = work.panel_columns * panels_of_a_group(work.row_count);
  const int64_t groups = at::divup(work.steps.columns, group);
  constexpr int64_t elements_worth_a_thread = 1 << 15;
  const int64_t grain = elements_worth_a_thread / (work.matrix.depth * group) + 1;
  const auto multiply = kernels().few_rows.multiply;
  if (groups <= grain) return multiply(work, 0, groups);
  at::parallel_for(0, groups, grain, [&](int64_t first, int64_t last) { multiply(work, first, last); });
}

constexpr int64_t rows_of_a_tile = 6;

// How many parts the rows are cut into, and how many the panels. Each thread has one part of each.
struct Parts {
  int64_t rows, panels;
};

// Those for which the busiest thread has least to multiply and to read.
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

// `prepare` is called by a thread for the rows of which it takes pieces, and gives a function that multiplies a piece.
template <typename Prepare>
void share_rows_and_panels(const RowsProduct& work, Prepare&& prepare) {
  const int64_t row_count = work.row_count, panel_count = at::divup(work.steps.columns, work.panel_columns);
  constexpr int64_t products_worth_a_thread = 1 << 18;
  const int64_t threads = std::min<int64_t>(
      thread_count(), row_count * work.matrix.depth * work.steps.columns / products_worth_a_thread + 1);
  if (threads == 1) return prepare(0, row_count)(0, row_count, 0, panel_count);
  const int64_t tiles = at::divup(row_count, rows_of_a_tile);
  const Parts parts = parts_for(threads, tiles, panel_count, work.panel_columns);
  const auto first_row = [&](int64_t part) { return std::min(tiles * part / parts.rows * rows_of_a_tile, row_count); };
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

void multiply_floats(const RowsProduct& work) {
  const auto multiply = [&](auto... range) { kernels().many_rows.multiply(work, range...); };
  share_rows_and_panels(work, [&](int64_t, int64_t) { return multiply; });
}

// Each thread rounds the rows that it multiplies, in memory of its own. A pass over all rows before would be faster only
// where no thread is ever held up at its end.
void multiply_pairs(const RowsProduct& work) {
  const PairsProductKernels& kernel = *kernels().optional.pairs_product;
  const int64_t depth = work.matrix.depth, words = at::divup(depth, 2);
  share_rows_and_panels(work, [&](int64_t first_row, int64_t last_row) {
    const at::Tensor memory = scratch(sizeof(uint32_t) * work.row_count * words);
    auto* rounded = static_cast<uint32_t*>(memory.data_ptr());
    for (int64_t row = first_row; row < last_row; ++row) {
      kernel.round(work.rows + row * work.row_stride, depth, rounded + row * words);
    }
    const PairsProduct product{.rows = rounded,
                               .row_stride = words,
                               .row_count = work.row_count,
                               .matrix = work.matrix,
                               .panel_columns = work.panel_columns,
                               .panel_size = work.panel_size,
                               .steps = work.steps,
                               .result = work.result,
                               .result_stride = work.result_stride};
    return [product, memory, &kernel](auto... range) { kernel.multiply(product, range...); };
  });
}

}  // namespace

std::optional<InputRows> rows_of(const at::Tensor& tensor) {
  const int64_t last = tensor.dim() - 1;
  if (tensor.stride(last) != 1 && tensor.size(last) != 1) return std::nullopt;
  int64_t count = 1, stride = tensor.size(last);
  for (int64_t i = last - 1; i >= 0; --i) {
    if (tensor.size(i) == 1) continue;
    if (count == 1) stride = tensor.stride(i);
    if (tensor.stride(i) != count * stride) return std::nullopt;
    count *= tensor.size(i);
  }
  return InputRows{tensor.const_data_ptr<float>(), count, stride};
}

bool can_multiply(const Panels& panels) {
  const int64_t width = kernels().few_rows.width;
  return panels.columns % width == 0 && panels.columns / width <= most_vectors_of_a_panel;
}

void multiply(const InputRows& rows, int64_t depth, const Panels& panels, const ElementwiseSteps& steps,
              float* result) {
  multiply({.rows = rows.first,
            .row_stride = rows.stride,
            .row_count = rows.count,
            .matrix = {NumberFormat::floats, panels.data, depth},
            .panel_columns = panels.columns,
            .panel_size = panels.size,
            .steps = steps,
            .result = result,
            .result_stride = steps.columns});
}

void multiply(const RowsProduct& work) {
  if (work.row_count <= most_few_rows) return share_groups(work);
  if (work.matrix.format == NumberFormat::pairs) return multiply_pairs(work);
  multiply_floats(work);
}

}  // namespace ipex::runtime
