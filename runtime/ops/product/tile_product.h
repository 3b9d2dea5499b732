// Products of many float32 rows on AMX's tiles (kernels/tile_product.h), exact as those of floats, with a matrix of any
// format: it becomes tiles panel by panel, in scratch memory.
#pragma once

#include <c10/util/FunctionRef.h>

#include <string>

#include "kernels/tile_product.h"
#include "ops/product/product.h"
#include "packed/facts.h"
#include "packed/packed_weight.h"

namespace ipex::runtime {

struct TileMatrix {
  int64_t depth, panel_columns;
  int64_t parts;              // of its numbers
  const float* scales;        // of the first panel's columns; null where all are 1
  int64_t scale_stride;       // from those of a panel to the next
  int64_t blocks_of_a_group;  // that have scales of their own, see TileProduct; 0 for all of them
  // All panels, one after the other, and of each all depth.
  const void* source;
  int64_t panel_bytes;
  // Depth may be cut at multiples of so many blocks.
  int64_t blocks_of_a_unit;
  // Writes the tiles of the blocks [first, last) of a panel. `room` has space for whole units as floats. There is none where
  // the source is tiles, or floats, which become tiles while others are multiplied.
  using Fill = c10::function_ref<void(int64_t panel, int64_t first, int64_t last, void* to, float* room)>;
  Fill fill;
  bool is_of_tiles = false;  // whether the source is tiles
};

// Whether so many rows gain by it, beside kernels for floats. `own_parts` is that of the matrix.
bool gains_by_tiles(int64_t rows, int64_t depth, int64_t columns, int64_t own_parts);

// How so many float32 rows are multiplied by a float32 weight: whether by tiles, and by which, where the weight keeps some.
// Whether tiles take its numbers is looked at once.
WeightTiles tiles_for(int64_t rows, const PackedWeight& weight, const Panels& panels, int64_t depth, int64_t columns);

// The bytes of tiles that a weight keeps, as a fact of its context. None for none.
Facts::Values kept_tiles(const PackedWeight& weight);

// result = steps(rows . matrix). `multiply_floats` computes the rows that have numbers that tiles can't have, from the first
// to the last of some.
void multiply_by_tiles(const InputRows& rows, const TileMatrix& matrix, const ElementwiseSteps& steps, float* result,
                       c10::function_ref<void(int64_t first_row, int64_t last_row)> multiply_floats);

}  // namespace ipex::runtime
