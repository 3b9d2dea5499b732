#include "ops/product/tile_product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "ops/product/product_cut.h"
#include "threads/thread_count.h"

namespace ipex::runtime {
namespace {

// What stays in the second cache while panels pass by, and of a panel while rows do.
constexpr int64_t bytes_of_rows_at_once = 768 << 10, bytes_of_panel_at_once = 320 << 10;
// A panel becomes tiles anew for each block of rows.
constexpr int64_t most_rows_of_a_block = 256;

int64_t whole_units(int64_t count, int64_t size) { return at::divup(count, size) * size; }

struct Range {
  int64_t first, last;
};

// A part of the result, by one thread.
class Part {
 public:
  Part(const InputRows& rows, const TileMatrix& matrix, const ElementwiseSteps& steps, float* result, Range panels)
      : rows_(rows), matrix_(matrix), steps_(steps), result_(result), panels_(panels) {}

  void multiply(Range rows) const {
    const int64_t count = rows.last - rows.first, row_tiles = at::divup(count, tile_rows);
    const int64_t blocks = tile_blocks(matrix_.depth), at_once = blocks_at_once(row_tiles, blocks);
    const int64_t row_bytes = bytes_of_row_tiles(count, matrix_.depth),
                  panel_bytes = bytes_of_panel_tiles(at_once * tile_depth, matrix_.panel_columns, matrix_.parts),
                  sum_bytes = row_tiles * matrix_.panel_columns / tile_columns * tile_bytes,
                  sums_bytes = at_once < blocks ? sum_bytes * (panels_.last - panels_.first) : 0,
                  float_rows = whole_units(at_once, matrix_.blocks_of_a_unit) * tile_depth,
                  float_bytes = static_cast<int64_t>(sizeof(float)) * matrix_.panel_columns * float_rows;
    const at::Tensor memory = scratch(row_bytes + panel_bytes + sums_bytes + float_bytes);
    char* const row_memory = static_cast<char*>(memory.data_ptr());
    char *const panel_memory = row_memory + row_bytes, *const sums = panel_memory + panel_bytes;
    auto* const room = reinterpret_cast<float*>(sums + sums_bytes);
    const TileProductKernels& kernel = *kernels().optional.tile_product;
    kernel.split_rows(rows_.first + rows.first * rows_.stride, rows_.stride, count, matrix_.depth, row_memory);
    for (int64_t first = 0; first < blocks; first += at_once) {
      const int64_t last = std::min(blocks, first + at_once);
      for (int64_t panel = panels_.first; panel < panels_.last; ++panel) {
        matrix_.fill(panel, first, last, panel_memory, room);
        const char* next = panel + 1 == panels_.last ? nullptr : source(panel + 1) + bytes_of_blocks(first);
        kernel.multiply({.rows = row_memory,
                         .row_blocks = blocks,
                         .first_row = rows.first,
                         .last_row = rows.last,
                         .panel = panel_memory,
                         .parts = matrix_.parts,
                         .first_block = first,
                         .last_block = last,
                         .panel_columns = matrix_.panel_columns,
                         .first_column = panel * matrix_.panel_columns,
                         .sums = reinterpret_cast<float*>(sums + (panel - panels_.first) * sum_bytes),
                         .scales = matrix_.scales ? matrix_.scales + panel * matrix_.scale_stride : nullptr,
                         .blocks_of_a_group = matrix_.blocks_of_a_group,
                         .ahead = next,
                         .ahead_bytes = next ? bytes_of_blocks(last - first) : 0,
                         .steps = steps_,
                         .result = result_});
      }
    }
  }

 private:
  const char* source(int64_t panel) const {
    return static_cast<const char*>(matrix_.source) + panel * matrix_.panel_bytes;
  }
  int64_t bytes_of_blocks(int64_t count) const { return matrix_.panel_bytes * count / tile_blocks(matrix_.depth); }

  int64_t blocks_at_once(int64_t row_tiles, int64_t blocks) const {
    const int64_t of_rows = bytes_of_rows_at_once / (row_tiles * parts_of_floats * tile_bytes),
                  of_panel =
                      bytes_of_panel_at_once / (matrix_.parts * matrix_.panel_columns / tile_columns * tile_bytes),
                  unit = matrix_.blocks_of_a_unit;
    const int64_t most = std::max(unit, std::min(of_rows, of_panel) / unit * unit);
    // Nearly equal pieces.
    const int64_t pieces = at::divup(blocks, most);
    return std::min(blocks, whole_units(at::divup(blocks, pieces), unit));
  }

  const InputRows& rows_;
  const TileMatrix& matrix_;
  const ElementwiseSteps& steps_;
  float* result_;
  Range panels_;
};

bool are_in_range(const InputRows& rows, int64_t depth) {
  constexpr int64_t elements_worth_a_thread = 1 << 17;
  std::atomic<bool> are = true;
  at::parallel_for(0, rows.count, elements_worth_a_thread / depth + 1, [&](int64_t first, int64_t last) {
    const float* from = rows.first + first * rows.stride;
    if (!kernels().optional.tile_product->are_in_range(from, rows.stride, last - first, depth)) are = false;
  });
  return are;
}

// All threads share these rows.
void multiply_range(const InputRows& rows, const TileMatrix& matrix, const ElementwiseSteps& steps, float* result,
                    Range range) {
  const ProductSize size{range.last - range.first, matrix.depth, steps.columns, matrix.panel_columns};
  const int64_t panels = at::divup(steps.columns, matrix.panel_columns);
  const ProductParts parts = parts_of(size, thread_count());
  at::parallel_for(0, parts.rows * parts.panels, /*grain_size=*/1, [&](int64_t first_part, int64_t last_part) {
    for (int64_t i = first_part; i < last_part; ++i) {
      const int64_t row_part = i / parts.panels, panel_part = i % parts.panels;
      const Part part(rows, matrix, steps, result,
                      {panels * panel_part / parts.panels, panels * (panel_part + 1) / parts.panels});
      const int64_t begin = range.first + first_row_of_part(size, parts, row_part),
                    end = range.first + first_row_of_part(size, parts, row_part + 1);
      const int64_t blocks = at::divup(end - begin, most_rows_of_a_block),
                    of_a_block = whole_units(at::divup(end - begin, blocks), 2 * tile_rows);
      for (int64_t row = begin; row < end; row += of_a_block) part.multiply({row, std::min(end, row + of_a_block)});
    }
  });
}

}  // namespace

bool fits_tiles(const PackedWeight& weight, const Panels& panels, int64_t columns) {
  struct Range {
    bool fits;
  };
  const auto look = [&] {
    const InputRows all{panels.data, at::divup(columns, panels.columns), panels.size};
    return std::make_unique<const Range>(Range{are_in_range(all, panels.size)});
  };
  return weight.derived<Range>(look).fits;
}

bool gains_by_tiles(int64_t rows, int64_t depth, int64_t columns, int64_t own_parts) {
  if (!kernels().optional.tile_product) return false;
  // With more threads, those that share a core's tiles, and what each of them splits again, cost more than is gained. The first
  // call decides for the process: results don't depend on how many threads there are later.
  static const bool has_few_threads = thread_count() <= 2;
  if (own_parts == parts_of_floats && !has_few_threads) return false;
  const int64_t least_rows = own_parts == 1 ? 12 : 96;
  constexpr int64_t least_elements = 1 << 14;
  return rows >= least_rows && depth >= tile_depth && depth * columns >= least_elements;
}

void multiply_by_tiles(const InputRows& rows, const TileMatrix& matrix, const ElementwiseSteps& steps, float* result,
                       c10::function_ref<void(int64_t first_row, int64_t last_row)> multiply_floats) {
  if (are_in_range(rows, matrix.depth)) return multiply_range(rows, matrix, steps, result, {0, rows.count});
  // A row's result does not depend on those beside it.
  const auto is_in_range = [&](int64_t row) {
    return are_in_range({rows.first + row * rows.stride, 1, rows.stride}, matrix.depth);
  };
  for (Range run{0, 0}; run.first < rows.count; run.first = run.last) {
    const bool fits = is_in_range(run.first);
    for (++run.last; run.last < rows.count && is_in_range(run.last) == fits;) ++run.last;
    fits ? multiply_range(rows, matrix, steps, result, run) : multiply_floats(run.first, run.last);
  }
}

}  // namespace ipex::runtime
