// Products on tiles: every number against a sum of doubles, and nothing written beside what is there. Compiled as
// runtime/kernels/amx_products.cpp is, and run by test_rows_product.py.
#define IPEX_ISA test
#include "kernels/basics.inc"

#include "kernels/codes_product.inc"
#include "kernels/tiles_in_use.inc"
// Needs it.
#include "kernels/tile_product.inc"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "check.h"

namespace ipex::runtime::test {
namespace {

float random_float() { return std::uniform_real_distribution<float>(-1, 1)(generator); }

struct Free {
  void operator()(char* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char, Free>;

Memory aligned(int64_t bytes) { return Memory(static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>(bytes)))); }

struct Case {
  int64_t rows, depth, columns, panel_columns;
};

// The rows begin in the middle of a result that has more before and behind. Depth is multiplied in pieces.
int wrong_elements(const Case& c, const std::vector<float>& rows, int64_t stride, const std::vector<float>& panel,
                   const char* tiles, int64_t parts, const float* scales, int64_t blocks_of_a_group,
                   int64_t blocks_at_once, char* again = nullptr) {
  constexpr float beside = -12345;
  const int64_t first_row = 3, blocks = tile_blocks(c.depth);
  const Memory row_tiles = aligned(bytes_of_row_tiles(c.rows, c.depth));
  split_rows(rows.data(), stride, c.rows, c.depth, row_tiles.get());
  std::vector<float> result((first_row + c.rows + 2) * c.columns, beside), bias(c.columns);
  for (float& x : bias) x = random_float();
  const ElementwiseStep step{Operation::mul_number, 2, 0, 0, nullptr, OperandSpread::all};
  const Memory sums = aligned(ceil_divide(c.rows, tile_rows) * c.panel_columns / tile_columns * tile_bytes);
  for (int64_t first = 0; first < blocks; first += blocks_at_once) {
    const int64_t last = first + blocks_at_once < blocks ? first + blocks_at_once : blocks;
    multiply_by_tiles(
        {.rows = row_tiles.get(),
         .row_blocks = blocks,
         .first_row = first_row,
         .last_row = first_row + c.rows,
         .panel = tiles + first * bytes_of_panel_tiles(1, c.panel_columns, parts),
         .parts = parts,
         .first_block = first,
         .last_block = last,
         .panel_columns = c.panel_columns,
         .first_column = 0,
         .sums = reinterpret_cast<float*>(sums.get()),
         .scales = scales,
         .blocks_of_a_group = blocks_of_a_group,
         .ahead = again ? TilesAhead{.floats = panel.data() + first * tile_depth * c.panel_columns,
                                     .stride = c.panel_columns,
                                     .depth = (last < blocks ? last * tile_depth : c.depth) - first * tile_depth,
                                     .columns = c.panel_columns,
                                     .tiles = again + first * bytes_of_panel_tiles(1, c.panel_columns, parts)}
                        : TilesAhead{},
         .steps = {bias.data(), &step, 1, c.columns},
         .result = result.data()});
  }
  int wrong = 0;
  for (int64_t row = 0; row < first_row + c.rows + 2; ++row) {
    for (int64_t column = 0; column < c.columns; ++column) {
      const float y = result[row * c.columns + column];
      if (row < first_row || row >= first_row + c.rows) {
        wrong += y != beside;
        continue;
      }
      double sum = bias[column], size = std::abs(sum);
      for (int64_t k = 0; k < c.depth; ++k) {
        const double term =
            static_cast<double>(rows[(row - first_row) * stride + k]) * panel[k * c.panel_columns + column];
        sum += term;
        size += std::abs(term);
      }
      // As floats are rounded that are summed in a row.
      wrong += !(std::abs(y - 2 * sum) <= 2 * size * 0x1p-20);
    }
  }
  return wrong;
}

int wrong_of_floats(const Case& c, int64_t blocks_at_once) {
  const int64_t stride = c.depth + 3;
  std::vector<float> rows(c.rows * stride), panel(c.depth * c.panel_columns);
  for (float& x : rows) x = std::ldexp(random_float(), static_cast<int>(generator() % 40));
  for (float& x : panel) x = random_float();
  const Memory tiles = aligned(bytes_of_panel_tiles(c.depth, c.panel_columns, parts_of_floats));
  split_panel(panel.data(), c.panel_columns, c.depth, c.panel_columns, tiles.get());
  // While tiles are multiplied, the same are made again.
  const Memory again = aligned(bytes_of_panel_tiles(c.depth, c.panel_columns, parts_of_floats));
  const int wrong =
      wrong_elements(c, rows, stride, panel, tiles.get(), parts_of_floats, nullptr, 0, blocks_at_once, again.get());
  return wrong +
         (std::memcmp(tiles.get(), again.get(), bytes_of_panel_tiles(c.depth, c.panel_columns, parts_of_floats)) != 0);
}

int wrong_of_codes(const Case& c, CodeFormat format, int64_t group_size, bool has_offsets) {
  const CodeWord word = word_of(format);
  const int64_t groups = ceil_divide(c.depth, group_size), depth = groups * group_size;
  std::vector<uint8_t> codes(depth * c.panel_columns * word.bytes / word.numbers);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(generator());
  for (size_t i = 0; i < codes.size(); ++i) {
    // Floats that are neither NaN nor, of bfloat16, next to nothing.
    if (format == CodeFormat::e4m3 || format == CodeFormat::e5m2) codes[i] &= 0xbf;
    if (format == CodeFormat::bf16 && i % 2 == 1) codes[i] = (codes[i] & 0xbf) | 0x30;
  }
  std::vector<float> scales(groups * c.panel_columns), offsets(scales.size()), panel(depth * c.panel_columns);
  for (float& x : scales) x = random_float();
  for (float& x : offsets) x = static_cast<float>(generator() % 257) - 128;
  const CodesMatrix matrix{format,     codes.data(), scales.data(), has_offsets ? offsets.data() : nullptr,
                           group_size, groups};
  expand_codes(matrix, 0, 0, groups, panel.data());
  const int64_t blocks = tile_blocks(c.depth), blocks_of_a_group = group_size / tile_depth;
  const Memory tiles = aligned(bytes_of_panel_tiles(c.depth, c.panel_columns, 1));
  put_codes_in_tiles(matrix, 0, 0, blocks, tiles.get());
  std::vector<float> rows(c.rows * depth);
  for (float& x : rows) x = random_float();
  int wrong = 0;
  for (const int64_t at_once : {blocks_of_a_group, 2 * blocks_of_a_group, blocks}) {
    wrong += wrong_elements(c, rows, depth, panel, tiles.get(), 1, scales.data(), blocks_of_a_group, at_once);
  }
  return wrong;
}

int wrong_ranges() {
  int wrong = 0;
  for (const int64_t depth : {1, 16, 40}) {
    std::vector<float> row(2 * depth, 1.f);
    const auto tiles = aligned(bytes_of_row_tiles(2, depth));
    const auto fit = [&] {
      const bool fits = are_rows_in_range(row.data(), depth, 2, depth);
      wrong += split_rows(row.data(), depth, 2, depth, tiles.get()) != fits;
      return fits;
    };
    wrong += !fit();
    for (const float odd : {INFINITY, -INFINITY, NAN, 0x1p61f, -0x1p61f}) {
      row[2 * depth - 1] = odd;
      wrong += fit();
    }
    for (int64_t k = depth; k < 2 * depth; ++k) row[k] = 0;
    wrong += !fit();
    row[2 * depth - 1] = 0x1p-61f;
    wrong += fit();
    row[2 * depth - 1] = 0x1p-60f;
    wrong += !fit();
  }
  return wrong;
}

}  // namespace
}  // namespace ipex::runtime::test

int main() {
  using namespace ipex::runtime;
  using namespace ipex::runtime::test;
  if (!may_use_tiles()) return 2;
  int cases = 0, wrong = wrong_ranges();
  for (const int64_t rows : {1, 15, 16, 17, 33, 48, 70}) {
    for (const int64_t depth : {1, 31, 32, 33, 64, 100, 130}) {
      for (const int64_t panel_columns : {16, 32, 48, 64}) {
        for (const int64_t columns : {int64_t{1}, panel_columns - 5, panel_columns}) {
          for (const int64_t at_once : {int64_t{1}, int64_t{2}, tile_blocks(depth)}) {
            wrong += wrong_of_floats({rows, depth, columns, panel_columns}, at_once);
            ++cases;
          }
        }
      }
      for (const int64_t columns : {1, 33, 64}) {
        for (const int64_t group_size : {32, 64, 96}) {
          for (const CodeFormat format :
               {CodeFormat::int8, CodeFormat::int4, CodeFormat::bf16, CodeFormat::e4m3, CodeFormat::e5m2}) {
            wrong += wrong_of_codes({rows, depth, columns, panel_columns_of_codes}, format, group_size, false);
            ++cases;
          }
          wrong += wrong_of_codes({rows, depth, columns, panel_columns_of_codes}, CodeFormat::int4, group_size, true);
          wrong += wrong_of_codes({rows, depth, columns, panel_columns_of_codes}, CodeFormat::int8, group_size, true);
          cases += 2;
        }
      }
    }
  }
  return report(cases, wrong);
}
