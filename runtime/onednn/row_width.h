// How wide a row of 16-bit numbers must be, so that oneDNN's kernels read nothing else.
//
// They multiply such numbers in pairs, and with AMX in tiles of 32. What a row lacks of its last pair or tile they read from
// behind it, and multiply by a weight of 0. A NaN or infinity of the next row or pixel, or of memory that nobody has
// written, makes that a NaN. Zeros behind each row keep it out.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace ipex::runtime {

// Whether oneDNN multiplies numbers of this type in tiles.
bool multiplies_in_tiles(at::ScalarType dtype);

constexpr int64_t tile_width = 32;

constexpr int64_t filled_up(int64_t width, int64_t unit) { return (width + unit - 1) / unit * unit; }

// The least width of whole pairs that holds this one; beyond one tile, of whole tiles.
constexpr int64_t whole_tiles(int64_t width) { return filled_up(width, width <= tile_width ? 2 : tile_width); }

}  // namespace ipex::runtime
