// Convolutions of 3x3 windows that move by one, with a quarter of the multiplications.
//
// A tile of 4x4 results comes from 6x6 pixels. Winograd's way takes both into a basis of 36 places, in which the
// convolution is one product per place and pair of channels instead of 144 for 16 results: so it becomes 36 matrix
// products, of the transformed pixels of many tiles and the transformed weight. What is computed stays float32, and
// with these points (0, +-3/4, +-3/2 and infinity) rounds about twice as much as a sum of products does. One thing
// differs: what is not finite in a tile spreads over the tile. So the kernel says where that happened.
//
//   image    [batch][height][width][channels]
//   weights  [36][panel][channels][panel_columns]    transformed: see transformed_weight in ops/convolution/winograd.cpp
//   result   [batch][result_height][result_width][columns]
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace ipex::runtime {

constexpr int64_t pixels_of_a_tile_side = 6;
constexpr int64_t results_of_a_tile_side = 4;
constexpr int64_t places_of_a_tile = pixels_of_a_tile_side * pixels_of_a_tile_side;

// How many tiles cover a side of the result.
constexpr int64_t tiles_along(int64_t side) { return (side + results_of_a_tile_side - 1) / results_of_a_tile_side; }

struct WinogradConvolution {
  const float* image;
  int64_t height, width, channels;  // channels: a multiple of the register's width
  int64_t padding_top, padding_left;
  const float* weights;
  ElementwiseSteps steps;  // what becomes of the sums; rows are pixels of the result
  float* result;
  int64_t result_height, result_width;
};

struct WinogradKernels {
  int64_t panel_columns;
  // The floats that a thread needs beside image and result.
  int64_t (*scratch_size)(const WinogradConvolution&);
  // Some columns, whole panels of them, of the tiles in [first_tile, last_tile), of all images, row by row. False when a
  // result before the steps is not finite: then others in its tile are not what a sum of products would give.
  bool (*convolve)(const WinogradConvolution&, int64_t first_tile, int64_t last_tile, int64_t first_column,
                   int64_t last_column, float* scratch);
};

}  // namespace ipex::runtime
