// The number formats of a packed matrix. A matrix is stored in words, and a word holds one number or several of a column,
// neighbours in depth. A register that is loaded from it holds one word of each of `width` columns.
//
//   floats    a word is a float
//   pairs     a 32-bit word is two bfloat16 numbers, the first in the low half; with an odd depth, the last high half is 0
//
// Another format is another row here, another type in numbers.inc and, where it has scales, another field of the matrix.
#pragma once

#include <cstdint>

namespace ipex::runtime {

enum class NumberFormat { floats, pairs };

// Of a matrix of floats: whether it is multiplied on AMX's tiles (tile_product.h), and all its panels as tiles where it keeps
// these.
struct WeightTiles {
  bool are_used = false;
  const void* kept = nullptr;
};

struct PackedMatrix {
  NumberFormat format;
  const void* words;
  int64_t depth;  // numbers of a column
  WeightTiles tiles{};
};

}  // namespace ipex::runtime
