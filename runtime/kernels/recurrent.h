// The arithmetic of recurrent layers, on plain pointers.
//
// A tile is what one call computes at once: some registers full of columns (outputs), for some rows. A packed matrix
// holds the columns of a tile in one panel or several, each of which is read from start to end:
//
//   words[tile][panel][words of a column][vector][width]    width: floats in a register, vector: a register of a panel
//
// In the matrix of hidden weights a tile has `width` hidden units, and one vector per gate: it computes all gates of
// its units, and the new state from them, without leaving the registers. The input projection is computed for many time
// steps at once, into columns of the same order.
//
// A matrix holds floats, or a copy of them in pairs (numbers.h): half the bytes are half the time where a step waits for
// memory. Of a matrix of 8-bit numbers bytes_product.h computes the products, and a step only what follows them.
#pragma once

#include <cstdint>

#include "kernels/numbers.h"

namespace ipex::runtime {

// Rows of a matrix that need not be equally far apart.
struct Projection {
  const float* const* rows;
  int64_t row_count;
  PackedMatrix weight;
  const float* start;  // one per column, what the sums begin with; null for zero
  float* result;
  int64_t result_stride;
  int64_t columns;
};

// One time step of `row_count` sequences.
struct RecurrentStep {
  int64_t row_count;
  int64_t units;
  PackedMatrix weight;
  // The hidden states' products with the weight where somebody has computed them, in the order of its columns: it is not
  // read then. Null where not.
  const float* products;
  int64_t products_stride;
  const float* projected;  // the input projection, in the same order
  int64_t projected_stride;
  const float* hidden;
  int64_t hidden_stride;
  float* new_hidden;
  int64_t new_hidden_stride;
  float* cell;             // lstm: read and overwritten, `units` to a row
  const float* new_start;  // gru: what the hidden sums of the new gate begin with, padded to whole vectors
};

struct RecurrentKernels {
  int64_t width;
  void (*project)(const Projection&, int64_t first_tile, int64_t last_tile);
  void (*lstm_step)(const RecurrentStep&, int64_t first_tile, int64_t last_tile);
  void (*gru_step)(const RecurrentStep&, int64_t first_tile, int64_t last_tile);
};

struct TileShape {
  int vectors, in_panel;
};
constexpr TileShape projection_tile{4, 2}, lstm_tile{4, 2}, gru_tile{3, 3};

}  // namespace ipex::runtime
