// Products of many rows of floats and a matrix on AMX's tiles, which multiply bfloat16 numbers: as exact as products of
// floats, because a float is the sum of three bfloat16 numbers, its parts, of which each is 2^-8 of the one before.
//
//   x * w = x0*w0 + x0*w1 + x1*w0 + x0*w2 + x1*w1 + x2*w0 + what is less than 2^-24 of it
//
// Numbers of a matrix that are bfloat16 numbers have one part. Sums are floats, of all products in one order.
//
// That holds for numbers whose parts neither overflow nor are below float's least normal number: see `are_in_range`. Both
// factors lie in tiles, filled up with zeros, a block of 32 numbers of depth after the other:
//
//   rows     bf16[tile of 16 rows][block][part][16 rows][32]
//   panel    bf16[block][part][tile of 16 columns][16][16 columns][2]    a panel is some columns, for the whole depth
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace ipex::runtime {

constexpr int64_t tile_rows = 16, tile_columns = 16, tile_depth = 32, tile_bytes = 1024, parts_of_floats = 3;

constexpr int64_t tile_blocks(int64_t depth) { return (depth + tile_depth - 1) / tile_depth; }
constexpr int64_t bytes_of_row_tiles(int64_t rows, int64_t depth) {
  return (rows + tile_rows - 1) / tile_rows * tile_blocks(depth) * parts_of_floats * tile_bytes;
}
constexpr int64_t bytes_of_panel_tiles(int64_t depth, int64_t panel_columns, int64_t parts) {
  return tile_blocks(depth) * parts * panel_columns / tile_columns * tile_bytes;
}

// What is read next, and may come from memory. Floats, lines of `stride` numbers, become tiles while others are multiplied, as
// `depth` lines of `columns` numbers; bytes of other formats are fetched into the second cache.
struct TilesAhead {
  const float* floats = nullptr;
  int64_t stride = 0, depth = 0, columns = 0;
  void* tiles = nullptr;
  const char* bytes = nullptr;
  int64_t byte_count = 0;
};

struct TileProduct {
  const void* rows;
  int64_t row_blocks;           // of depth, that `rows` has
  int64_t first_row, last_row;  // of the result; the first one begins a tile of `rows`
  // Blocks [first_block, last_block) are multiplied, and `panel` begins with the first.
  const void* panel;
  int64_t parts, first_block, last_block;
  int64_t panel_columns, first_column;
  // Tiles of sums, for the rows and the panel: those of the blocks before, and where sums go that lack blocks behind. Not
  // read nor written where all blocks are multiplied at once.
  float* sums;
  // Of the panel's columns, for the sums; null for none. Where `blocks_of_a_group` is not 0, each group of so many blocks has
  // a line of its own, `panel_columns` after the one before, and groups are multiplied as wholes.
  const float* scales;
  int64_t blocks_of_a_group;
  TilesAhead ahead;
  ElementwiseSteps steps;
  // Dense. May be where the operand of the first step is, if that adds one of the result's shape.
  float* result;
};

struct TileProductKernels {
  // Whether all numbers are finite, and those of each row either 0 or the largest one between 2^-60 and 2^60.
  bool (*are_in_range)(const float* rows, int64_t stride, int64_t row_count, int64_t depth);
  // Answers the same. Where they are not, not all of them were split.
  bool (*split_rows)(const float* rows, int64_t stride, int64_t row_count, int64_t depth, void* to);
  // `depth` lines of floats.
  void (*split_panel)(const float* panel, int64_t stride, int64_t depth, int64_t columns, void* to);
  void (*multiply)(const TileProduct&);
};

}  // namespace ipex::runtime
