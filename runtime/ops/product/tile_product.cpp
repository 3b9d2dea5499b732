#include "ops/product/tile_product.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "memory/weight_memory.h"
#include "threads/parallel.h"
#include "threads/thread_count.h"

namespace ipex::runtime {
namespace {

// Of rows, what stays in the second cache while panels pass by; of a panel, what does while rows do.
constexpr int64_t bytes_of_rows_at_once = 768 << 10, bytes_of_panel_at_once = 192 << 10;
// A panel becomes tiles anew for each block of rows.
constexpr int64_t most_rows_of_a_block = 256;

int64_t whole_units(int64_t count, int64_t size) { return at::divup(count, size) * size; }

// Nearly equal pieces of whole units, of `most` at most, or of one unit.
int64_t size_of_a_piece(int64_t count, int64_t unit, int64_t most) {
  const int64_t pieces = at::divup(count, std::max(unit, most / unit * unit));
  return std::min(count, whole_units(at::divup(count, pieces), unit));
}

struct Range {
  int64_t first, last;
  int64_t size() const { return last - first; }
};

// What is multiplied at once: some blocks of depth, and tiles of columns, of one panel.
struct Item {
  Range blocks, columns;
  bool exists() const { return columns.size() > 0; }
};

// A part of the result, by one thread. Its depth is cut twice: for a piece, whose rows stay in the second cache, all columns
// pass by; panels are taken in pieces of that.
class Part {
 public:
  Part(const InputRows& rows, const TileMatrix& matrix, const ElementwiseSteps& steps, float* result,
       Range rows_of_part, Range columns)
      : rows_(rows),
        matrix_(matrix),
        steps_(steps),
        result_(result),
        range_(rows_of_part),
        columns_(columns),
        row_tiles_(at::divup(range_.size(), tile_rows)),
        blocks_(tile_blocks(matrix.depth)),
        blocks_of_rows_(size_of_a_piece(blocks_, matrix.blocks_of_a_unit,
                                        bytes_of_rows_at_once / (row_tiles_ * parts_of_floats * tile_bytes))),
        blocks_of_an_item_(size_of_a_piece(blocks_of_rows_, matrix.blocks_of_a_unit,
                                           bytes_of_panel_at_once / (matrix.parts * panel_tiles() * tile_bytes))) {}

  // False where a row has numbers that tiles can't have: then nothing was written.
  bool multiply() const {
    const bool has_tiles = matrix_.is_of_tiles, splits_ahead = !has_tiles && !matrix_.fill;
    const int64_t row_bytes = bytes_of_row_tiles(range_.size(), matrix_.depth),
                  item_bytes = has_tiles ? 0
                                         : bytes_of_panel_tiles(blocks_of_an_item_ * tile_depth, matrix_.panel_columns,
                                                                matrix_.parts),
                  column_tiles = blocks_of_rows_ < blocks_ ? columns_.size() : panel_tiles(),
                  sum_bytes = blocks_of_an_item_ < blocks_ ? row_tiles_ * column_tiles * tile_bytes : 0,
                  float_rows =
                      matrix_.fill ? whole_units(blocks_of_an_item_, matrix_.blocks_of_a_unit) * tile_depth : 0,
                  float_bytes = static_cast<int64_t>(sizeof(float)) * matrix_.panel_columns * float_rows,
                  gated_bytes = rows_.gates ? static_cast<int64_t>(sizeof(float)) * tile_rows * matrix_.depth : 0;
    const at::Tensor memory = scratch(row_bytes + 2 * item_bytes + sum_bytes + float_bytes + gated_bytes);
    char* const row_memory = static_cast<char*>(memory.data_ptr());
    char *tiles = row_memory + row_bytes, *next_tiles = tiles + item_bytes;
    char* const sums = next_tiles + item_bytes;
    auto* const room = reinterpret_cast<float*>(sums + sum_bytes);
    const TileProductKernels& kernel = *kernels().optional.tile_product;
    if (!split_rows(kernel, row_memory, room + float_bytes / sizeof(float))) return false;
    Item item = first();
    if (splits_ahead) split(kernel, floats(item, tiles));
    while (item.exists()) {
      if (matrix_.fill) matrix_.fill(panel(item), item.blocks.first, item.blocks.last, tiles, room);
      const Item next = after(item);
      const int64_t sums_before = blocks_of_rows_ < blocks_ ? item.columns.first - columns_.first : 0;
      kernel.multiply({.rows = row_memory,
                       .row_blocks = blocks_,
                       .first_row = range_.first,
                       .last_row = range_.last,
                       .panel = has_tiles ? bytes(item).bytes : tiles,
                       .parts = matrix_.parts,
                       .first_block = item.blocks.first,
                       .last_block = item.blocks.last,
                       .panel_columns = item.columns.size() * tile_columns,
                       .first_column = item.columns.first * tile_columns,
                       .sums = reinterpret_cast<float*>(sums + sums_before * row_tiles_ * tile_bytes),
                       .scales = matrix_.scales ? matrix_.scales + panel(item) * matrix_.scale_stride : nullptr,
                       .blocks_of_a_group = matrix_.blocks_of_a_group,
                       .ahead = !next.exists() ? TilesAhead{}
                                : splits_ahead ? floats(next, next_tiles)
                                               : bytes(next),
                       .steps = steps_,
                       .result = result_});
      if (splits_ahead) std::swap(tiles, next_tiles);
      item = next;
    }
    return true;
  }

 private:
  // Gated, where they are, a tile at a time.
  bool split_rows(const TileProductKernels& kernel, char* to, float* gated) const {
    const int64_t depth = matrix_.depth;
    if (!rows_.gates) {
      return kernel.split_rows(rows_.first + range_.first * rows_.stride, rows_.stride, range_.size(), depth, to);
    }
    for (int64_t row = range_.first; row < range_.last; row += tile_rows) {
      const int64_t end = std::min(range_.last, row + tile_rows);
      rows_.gates.apply(rows_.first, rows_.stride, row, end, depth, gated);
      if (!kernel.split_rows(gated, depth, end - row, depth, to)) return false;
      to += bytes_of_row_tiles(tile_rows, depth);
    }
    return true;
  }

  int64_t panel_tiles() const { return matrix_.panel_columns / tile_columns; }
  int64_t panel(const Item& item) const { return item.columns.first / panel_tiles(); }

  // Items end where their panel or their piece of depth does. Panels that `fill` writes are taken as wholes.
  Range columns_from(int64_t first) const {
    return {first, std::min(columns_.last, whole_units(first + 1, panel_tiles()))};
  }
  Range blocks_from(int64_t first) const {
    const int64_t end = std::min(blocks_, whole_units(first + 1, blocks_of_rows_));
    return {first, std::min(end, first + blocks_of_an_item_)};
  }

  Item first() const { return {blocks_from(0), columns_from(columns_.first)}; }
  Item after(const Item& item) const {
    const int64_t end = item.blocks.last;
    if (end < blocks_ && end % blocks_of_rows_ != 0) return {blocks_from(end), item.columns};
    const int64_t begin = (end - 1) / blocks_of_rows_ * blocks_of_rows_;
    if (item.columns.last < columns_.last) return {blocks_from(begin), columns_from(item.columns.last)};
    if (end < blocks_) return {blocks_from(end), columns_from(columns_.first)};
    return {};
  }

  TilesAhead floats(const Item& item, char* tiles) const {
    const auto* first = static_cast<const float*>(matrix_.source) + panel(item) * matrix_.panel_bytes / sizeof(float);
    return {.floats = first + item.blocks.first * tile_depth * matrix_.panel_columns +
                      item.columns.first % panel_tiles() * tile_columns,
            .stride = matrix_.panel_columns,
            .depth = std::min(item.blocks.last * tile_depth, matrix_.depth) - item.blocks.first * tile_depth,
            .columns = item.columns.size() * tile_columns,
            .tiles = tiles};
  }
  static void split(const TileProductKernels& kernel, const TilesAhead& all) {
    kernel.split_panel(all.floats, all.stride, all.depth, all.columns, all.tiles);
  }
  TilesAhead bytes(const Item& item) const {
    const auto bytes_of = [&](int64_t blocks) { return matrix_.panel_bytes * blocks / blocks_; };
    const char* first = static_cast<const char*>(matrix_.source) + panel(item) * matrix_.panel_bytes;
    return {.bytes = first + bytes_of(item.blocks.first), .byte_count = bytes_of(item.blocks.size())};
  }

  const InputRows& rows_;
  const TileMatrix& matrix_;
  const ElementwiseSteps& steps_;
  float* result_;
  Range range_, columns_;  // columns in tiles
  int64_t row_tiles_, blocks_;
  int64_t blocks_of_rows_, blocks_of_an_item_;
};

struct Cut {
  int64_t row_parts, column_parts;
};

// Each thread makes tiles of its rows and of its columns. To do so takes about as long as to multiply so many columns or rows.
// What the op before wrote lies in other cores' caches, but for a thread's equal share of the rows.
Cut cut_of(int64_t rows, int64_t columns, int64_t unit, int64_t threads) {
  constexpr int64_t columns_worth_a_row = 45, columns_worth_a_row_from_others = 120, rows_worth_a_column = 57;
  Cut best{1, 1};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t row_parts = 1; row_parts <= std::min(threads, at::divup(rows, 2 * tile_rows)); ++row_parts) {
    const int64_t column_parts = std::min(threads / row_parts, at::divup(columns, unit));
    const int64_t row_share = whole_units(at::divup(rows, row_parts), tile_rows),
                  column_share = at::divup(at::divup(columns, unit), column_parts) * unit;
    const int64_t cost = row_share * column_share + rows_worth_a_column * column_share +
                         columns_worth_a_row * row_share +
                         columns_worth_a_row_from_others * (row_share - rows / threads);
    if (cost < least) {
      best = {row_parts, column_parts};
      least = cost;
    }
  }
  return best;
}

bool are_in_range(const InputRows& rows, int64_t depth) {
  constexpr int64_t elements_worth_a_thread = 1 << 17;
  std::atomic<bool> are = true;
  parallel_for(rows.count, elements_worth_a_thread / depth + 1, [&](int64_t first, int64_t last) {
    const float* from = rows.first + first * rows.stride;
    if (!kernels().optional.tile_product->are_in_range(from, rows.stride, last - first, depth)) are = false;
  });
  return are;
}

// Blocks of rows that are left out, each by all threads that come upon it.
class BlocksLeftOut {
 public:
  void add(Range rows) {
    const std::lock_guard guard(mutex_);
    const auto is_same = [&](const Range& other) { return other.first == rows.first; };
    if (std::none_of(blocks_.begin(), blocks_.end(), is_same)) blocks_.push_back(rows);
  }
  const std::vector<Range>& get() const { return blocks_; }

 private:
  std::mutex mutex_;
  std::vector<Range> blocks_;
};

// All threads share these rows. Gives the blocks that were left out because a row has numbers that tiles can't have.
std::vector<Range> multiply_range(const InputRows& rows, const TileMatrix& matrix, const ElementwiseSteps& steps,
                                  float* result, Range range) {
  constexpr int64_t products_worth_a_thread = 1 << 19;
  const int64_t count = range.size(), unit = matrix.fill || matrix.is_of_tiles ? matrix.panel_columns : tile_columns;
  // To make tiles of rows and columns costs the less the fewer parts there are.
  const int64_t threads = thread_count(), most_parts = threads <= 2 ? threads : 2 * threads;
  const int64_t parts = std::min(most_parts, count * matrix.depth * steps.columns / products_worth_a_thread + 1);
  const Cut cut = cut_of(count, steps.columns, unit, parts);
  const int64_t row_tiles = at::divup(count, tile_rows), units = at::divup(steps.columns, unit);
  const int64_t tiles_of_a_unit = unit / tile_columns;
  BlocksLeftOut left_out;
  parallel_for(cut.row_parts * cut.column_parts, /*grain_size=*/1, [&](int64_t first_part, int64_t last_part) {
    for (int64_t i = first_part; i < last_part; ++i) {
      const int64_t row_part = i / cut.column_parts, column_part = i % cut.column_parts;
      const auto column = [&](int64_t part) { return units * part / cut.column_parts * tiles_of_a_unit; };
      const auto row = [&](int64_t part) {
        return range.first + std::min(count, row_tiles * part / cut.row_parts * tile_rows);
      };
      const Range columns{column(column_part), column(column_part + 1)};
      const int64_t end = row(row_part + 1);
      const int64_t of_a_block = size_of_a_piece(end - row(row_part), 2 * tile_rows, most_rows_of_a_block);
      for (int64_t first = row(row_part); first < end; first += of_a_block) {
        const Range block{first, std::min(end, first + of_a_block)};
        if (!Part(rows, matrix, steps, result, block, columns).multiply()) left_out.add(block);
      }
    }
  });
  return left_out.get();
}

constexpr int64_t least_columns = 128;  // for fewer it doesn't pay to split the rows

bool is_large_enough(int64_t depth, int64_t columns) {
  constexpr int64_t least_elements = 1 << 14;
  return depth >= tile_depth && depth * columns >= least_elements;
}

// To make tiles of a column takes as long as to multiply 57 rows by it: fewer rows than this wait for it.
constexpr int64_t rows_that_hide_splitting = 96;

// Tiles of a weight take one and a half times its memory. A third tile of rows that is half empty is not worth it.
bool gains_by_kept_tiles(int64_t rows, int64_t depth, int64_t columns) {
  constexpr int64_t most_elements = 1 << 19, least_rows = 48, nearly_two_tiles = 29;
  return (rows >= least_rows || (rows >= nearly_two_tiles && rows <= 2 * tile_rows)) &&
         rows < rows_that_hide_splitting && columns >= least_columns && is_large_enough(depth, columns) &&
         depth * columns <= most_elements;
}

bool are_numbers_in_range(const PackedWeight& weight, const Panels& panels, int64_t columns) {
  struct Range {
    bool fits;
  };
  const auto look = [&] {
    const InputRows all{panels.data, at::divup(columns, panels.columns), panels.size};
    return std::make_unique<const Range>(Range{are_in_range(all, panels.size)});
  };
  return weight.derived<Range>(look).fits;
}

// All panels of a weight. They are in no file: to read them takes as long as to make them.
class KeptTiles {
 public:
  KeptTiles(const Panels& panels, int64_t depth, int64_t columns) {
    const int64_t count = at::divup(columns, panels.columns),
                  bytes = bytes_of_panel_tiles(depth, panels.columns, parts_of_floats);
    memory_ = empty_weight({count * bytes}, at::kByte);
    auto* const to = memory_.data_ptr<uint8_t>();
    parallel_for(count, /*grain_size=*/1, [&](int64_t first, int64_t last) {
      for (int64_t panel = first; panel < last; ++panel) {
        kernels().optional.tile_product->split_panel(panels.data + panel * panels.size, panels.columns, depth,
                                                     panels.columns, to + panel * bytes);
      }
    });
  }

  const void* data() const { return memory_.const_data_ptr(); }
  int64_t bytes() const { return memory_.numel(); }

 private:
  at::Tensor memory_;
};

}  // namespace

bool gains_by_tiles(int64_t rows, int64_t depth, int64_t columns, int64_t own_parts) {
  if (!kernels().optional.tile_product || !is_large_enough(depth, columns)) return false;
  constexpr int64_t least_rows_of_one_part = 12;
  return own_parts == 1 ? rows >= least_rows_of_one_part : rows >= rows_that_hide_splitting && columns >= least_columns;
}

WeightTiles tiles_for(int64_t rows, const PackedWeight& weight, const Panels& panels, int64_t depth, int64_t columns) {
  const bool keeps = kernels().optional.tile_product && gains_by_kept_tiles(rows, depth, columns);
  if (!keeps && !gains_by_tiles(rows, depth, columns, parts_of_floats)) return {};
  if (!are_numbers_in_range(weight, panels, columns)) return {};
  const auto make = [&] { return std::make_unique<const KeptTiles>(panels, depth, columns); };
  return {.are_used = true, .kept = keeps ? weight.derived<KeptTiles>(make).data() : nullptr};
}

Facts::Values kept_tiles(const PackedWeight& weight) {
  const auto* tiles = weight.made<KeptTiles>();
  return tiles ? Facts::Values{{"tiles_bytes", tiles->bytes()}} : Facts::Values();
}

void multiply_by_tiles(const InputRows& rows, const TileMatrix& matrix, const ElementwiseSteps& steps, float* result,
                       c10::function_ref<void(int64_t first_row, int64_t last_row)> multiply_floats) {
  // A row's result does not depend on those beside it.
  std::vector<float> gated(rows.gates ? static_cast<size_t>(matrix.depth) : 0);
  const auto is_in_range = [&](int64_t row) {
    if (!rows.gates) return are_in_range({rows.first + row * rows.stride, 1, rows.stride}, matrix.depth);
    rows.gates.apply(rows.first, rows.stride, row, row + 1, matrix.depth, gated.data());
    return are_in_range({gated.data(), 1, matrix.depth}, matrix.depth);
  };
  for (const Range& block : multiply_range(rows, matrix, steps, result, {0, rows.count})) {
    for (Range run{block.first, block.first}; run.first < block.last; run.first = run.last) {
      const bool fits = is_in_range(run.first);
      for (++run.last; run.last < block.last && is_in_range(run.last) == fits;) ++run.last;
      if (fits) {
        multiply_range(rows, matrix, steps, result, run);
      } else {
        multiply_floats(run.first, run.last);
      }
    }
  }
}

}  // namespace ipex::runtime
