#include "ops/product/product.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "ops/product/share_product.h"
#include "ops/product/tile_product.h"
#include "packed/float_rows.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

ProductSize size_of(const RowsProduct& work) {
  return {work.row_count, work.matrix.depth, work.steps.columns, work.panel_columns};
}

// Products of the same rows, as if their matrices stood side by side, each filled up to whole units of columns.
struct SideBySide {
  std::span<const RowsProduct> works;
  int64_t unit;

  ProductSize size() const {
    ProductSize whole = size_of(works.back());
    for (const RowsProduct& work : works.first(works.size() - 1)) whole.columns += units(work) * unit;
    return whole;
  }

  // multiply(work, first, last) for what of the units [first, last) lies in each.
  template <typename Multiply>
  void in_range(int64_t first, int64_t last, Multiply&& multiply) const {
    for (const RowsProduct& work : works) {
      const int64_t count = units(work);
      if (first < count && last > 0) multiply(work, std::max<int64_t>(first, 0), std::min(last, count));
      first -= count;
      last -= count;
    }
  }

 private:
  int64_t units(const RowsProduct& work) const { return at::divup(work.steps.columns, unit); }
};

void share_columns(std::span<const RowsProduct> works) {
  // Below, one thread has read the matrix before the others have woken up.
  constexpr int64_t elements_worth_waking = 1 << 16;
  const int64_t width = kernels().few_rows.width;
  const SideBySide all{works, width};
  const ProductSize size = all.size();
  const auto multiply = [&](int64_t first, int64_t last) { all.in_range(first, last, kernels().few_rows.multiply); };
  const int64_t parts = size.depth * size.columns <= elements_worth_waking ? 1 : part_count();
  if (parts == 1) return multiply(0, at::divup(size.columns, width));
  const ColumnCut cut = column_cut(size, width, parts);
  parallel_for(cut.threads, /*grain_size=*/1,
               [&](int64_t first, int64_t last) { multiply(cut.first(first), cut.first(last)); });
}

void multiply_some(const RowsProduct& work, const RowGates& gates, int64_t first_row, int64_t last_row,
                   int64_t first_panel, int64_t last_panel) {
  const ManyRowsKernels& kernel = kernels().many_rows;
  if (!gates) return kernel.multiply(work, first_row, last_row, first_panel, last_panel);
  constexpr int64_t elements_at_once = 1 << 15, rows_of_whole_tiles = 48;
  const int64_t depth = work.matrix.depth,
                at_once = std::max<int64_t>(1, elements_at_once / (depth * rows_of_whole_tiles)) * rows_of_whole_tiles;
  const at::Tensor memory = scratch(sizeof(float) * std::min(at_once, last_row - first_row) * depth);
  auto* const gated = static_cast<float*>(memory.data_ptr());
  RowsProduct some = work;
  some.row_stride = depth;
  for (int64_t row = first_row; row < last_row; row += at_once) {
    const int64_t end = std::min(last_row, row + at_once);
    gates.apply(work.rows, work.row_stride, row, end, depth, gated);
    some.rows = gated - row * depth;
    kernel.multiply(some, row, end, first_panel, last_panel);
  }
}

// On AMX's tiles.
void multiply_in_parts(const RowsProduct& work, const RowGates& gates = {}) {
  const void* tiles = work.matrix.tiles.kept;
  const int64_t bytes = tiles ? bytes_of_panel_tiles(work.matrix.depth, work.panel_columns, parts_of_floats)
                              : static_cast<int64_t>(sizeof(float)) * work.panel_size;
  const TileMatrix matrix{.depth = work.matrix.depth,
                          .panel_columns = work.panel_columns,
                          .parts = parts_of_floats,
                          .scales = nullptr,
                          .scale_stride = 0,
                          .blocks_of_a_group = 0,
                          .source = tiles ? tiles : work.matrix.words,
                          .panel_bytes = bytes,
                          .blocks_of_a_unit = 1,
                          .fill = {},
                          .is_of_tiles = tiles != nullptr};
  const InputRows rows{work.rows, work.row_count, work.row_stride, gates};
  multiply_by_tiles(rows, matrix, work.steps, work.result, [&](int64_t first, int64_t last) {
    multiply_some(work, gates, first, last, 0, at::divup(work.steps.columns, work.panel_columns));
  });
}

void multiply_floats(std::span<const RowsProduct> works) {
  const SideBySide all{works, works.front().panel_columns};
  share_rows_and_panels(all.size(), [&](int64_t, int64_t) {
    return [&](int64_t first_row, int64_t last_row, int64_t first_panel, int64_t last_panel) {
      all.in_range(first_panel, last_panel, [&](const RowsProduct& work, int64_t first, int64_t last) {
        kernels().many_rows.multiply(work, first_row, last_row, first, last);
      });
    };
  });
}

// Each thread rounds the rows that it multiplies, in memory of its own. A pass over all rows before would be faster only
// where no thread is ever held up at its end.
void multiply_pairs(const RowsProduct& work) {
  const PairsProductKernels& kernel = *kernels().optional.pairs_product;
  const int64_t depth = work.matrix.depth;
  const int64_t words = at::divup(at::divup(depth, 2), kernel.whole_words) * kernel.whole_words;
  share_rows_and_panels(size_of(work), [&](int64_t first_row, int64_t last_row) {
    const at::Tensor memory = scratch(sizeof(uint32_t) * (work.row_count + kernel.whole_rows - 1) * words);
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

// Each thread makes floats of a panel, in memory of its own, before it multiplies its rows by it.
void multiply_widened(const RowsProduct& work) {
  const auto& kernel = kernels().many_rows;
  const int64_t words = at::divup(work.matrix.depth, 2);
  share_rows_and_panels(size_of(work), [&](int64_t, int64_t) {
    const at::Tensor memory = scratch(sizeof(float) * 2 * words * work.panel_columns);
    auto* floats = static_cast<float*>(memory.data_ptr());
    RowsProduct product = work;
    product.matrix = {NumberFormat::floats, floats, work.matrix.depth};
    product.panel_size = 0;  // every panel lies there in turn
    const auto* pairs = static_cast<const uint32_t*>(work.matrix.words);
    return [=, &kernel, size = work.panel_size](int64_t first_row, int64_t last_row, int64_t first, int64_t last) {
      for (int64_t panel = first; panel < last; ++panel) {
        kernel.widen(pairs + panel * size, words, product.panel_columns, floats);
        kernel.multiply(product, first_row, last_row, panel, panel + 1);
      }
      (void)memory;
    };
  });
}

}  // namespace

void RowGates::apply(const float* rows, int64_t stride, int64_t first_row, int64_t last_row, int64_t depth,
                     float* to) const {
  for (int64_t row = first_row; row < last_row; ++row, to += depth) {
    kernels().many_rows.gate(rows + row * stride, first + row / rows_of_each * depth, depth, to);
  }
}

std::optional<InputRows> rows_of(const at::Tensor& tensor) {
  const auto stride = row_stride(tensor, /*dimensions=*/1);
  if (!stride) return std::nullopt;
  return InputRows{tensor.const_data_ptr<float>(), c10::multiply_integers(tensor.sizes().slice(0, tensor.dim() - 1)),
                   *stride};
}

bool can_multiply(const Panels& panels) {
  const int64_t width = kernels().few_rows.width;
  return panels.columns % width == 0 && panels.columns / width <= most_vectors_of_a_panel;
}

RowsProduct product_of(const InputRows& rows, int64_t depth, const Panels& panels, const ElementwiseSteps& steps,
                       float* result, const WeightTiles& tiles) {
  return {.rows = rows.first,
          .row_stride = rows.stride,
          .row_count = rows.count,
          .matrix = {NumberFormat::floats, panels.data, depth, tiles},
          .panel_columns = panels.columns,
          .panel_size = panels.size,
          .steps = steps,
          .result = result,
          .result_stride = steps.columns};
}

void multiply_side_by_side(std::span<const RowsProduct> works) {
  const auto has_panels_of_first = [&](const RowsProduct& work) {
    return work.panel_columns == works.front().panel_columns;
  };
  const bool is_on_tiles = works.front().matrix.tiles.are_used;
  if (is_on_tiles || !std::all_of(works.begin(), works.end(), has_panels_of_first)) {
    for (const RowsProduct& work : works) multiply(work);
  } else if (works.front().row_count <= most_few_rows) {
    share_columns(works);
  } else {
    multiply_floats(works);
  }
}

void multiply(const RowsProduct& work) {
  if (work.row_count <= most_few_rows) return share_columns({&work, 1});
  if (work.matrix.tiles.are_used) return multiply_in_parts(work);
  if (work.matrix.format == NumberFormat::floats) return multiply_floats({&work, 1});
  return kernels().optional.pairs_product ? multiply_pairs(work) : multiply_widened(work);
}

void multiply_gated(const RowsProduct& work, const RowGates& gates) {
  if (work.matrix.tiles.are_used) return multiply_in_parts(work, gates);
  share_rows_and_panels(size_of(work),
                        [&](int64_t, int64_t) { return [&](auto... range) { multiply_some(work, gates, range...); }; });
}

}  // namespace ipex::runtime
