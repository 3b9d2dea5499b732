// Convolutions of 3x3 windows that move by one, with a quarter of the multiplications.
//
// A tile of 4x4 results comes from 6x6 pixels. Winograd's way takes both into a basis of 36 places, in which the
// convolution is one product per place and pair of channels instead of 144 for 16 results: so it becomes 36 matrix
// products, of the transformed pixels of many tiles and the transformed weight. What is computed stays float32, and
// with these points (0, +-3/4, +-3/2 and infinity) rounds about twice as much as a sum of products does. One thing
// differs: what is not finite in a tile spreads over the tile. So the kernel says where that happened.
//
// A dilation of d makes d x d convolutions without one, which share nothing: of the results in every d-th row and column,
// from the first, the second, .. (d-1)th on, and of the pixels whose steps are the same. So the results of a tile, and its
// pixels, lie d rows and columns apart, and nothing else changes.
//
// Groups are convolutions that lie side by side in image and result. Their last panels are filled up with zeros.
//
//   image    [batch][height][width][group][channels]
//   weights  [group][36][panel][channels][panel_columns]    transformed
//   windows  [group][panel][channels][9][panel_columns]     as they are: a quarter of the memory
//   result   [batch][result_height][result_width][group][columns]
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace ipex::runtime {

constexpr int64_t pixels_of_a_tile_side = 6;
constexpr int64_t results_of_a_tile_side = 4;
constexpr int64_t places_of_a_tile = pixels_of_a_tile_side * pixels_of_a_tile_side;

// The tiles that cover a side of the result: for each place to start from, those of the results that lie `dilation` apart
// from there on. The first places may have one result more than the others.
struct TilesOfSide {
  constexpr TilesOfSide(int64_t side, int64_t dilation)
      : dilation(dilation),
        longer(side % dilation),
        of_longer(tiles_of(side / dilation + 1)),
        of_others(tiles_of(side / dilation)) {}

  constexpr int64_t count() const { return longer * of_longer + (dilation - longer) * of_others; }
  constexpr int64_t first_result(int64_t tile) const {
    const int64_t other = tile - longer * of_longer;
    return other < 0 ? tile / of_longer + tile % of_longer * results_of_a_tile_side * dilation
                     : longer + other / of_others + other % of_others * results_of_a_tile_side * dilation;
  }

  int64_t dilation, longer, of_longer, of_others;

 private:
  static constexpr int64_t tiles_of(int64_t results) {
    return (results + results_of_a_tile_side - 1) / results_of_a_tile_side;
  }
};

struct WinogradConvolution {
  const float* image;
  int64_t height, width, pixel_stride;
  int64_t groups, channels, columns;  // channels and columns of a group
  int64_t padding_top, padding_left;
  int64_t dilation_down, dilation_across;
  const float* weights;  // or null: then the kernel transforms the windows itself, once for each block of tiles
  const float* windows;
  ElementwiseSteps steps;  // what becomes of the sums; rows are pixels of the result
  float* result;
  int64_t result_height, result_width;
};

struct WinogradKernels {
  int64_t panel_columns;
  // Windows [lines][9][panel_columns] to [36][lines][panel_columns], with `place_size` floats from one place to the next.
  void (*transform)(const float* windows, int64_t lines, float* weights, int64_t place_size);
  // The floats that a thread needs beside image and result.
  int64_t (*scratch_size)(const WinogradConvolution&);
  // Some panels of each group, of the tiles in [first_tile, last_tile), of all images, row by row. False when a result
  // before the steps is not finite: then others in its tile are not what a sum of products would give.
  bool (*convolve)(const WinogradConvolution&, int64_t first_tile, int64_t last_tile, int64_t first_panel,
                   int64_t last_panel, float* scratch);
};

}  // namespace ipex::runtime
