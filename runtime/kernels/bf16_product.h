// A few rows of float32 numbers times a matrix of bfloat16 ones, on plain pointers. Such products wait for memory: half
// the bytes are half the time, although every element has to be widened.
//
// A tile has 2 * width columns. Two columns share a 32-bit word, so that one load fills two registers, one of them by a
// shift and the other by a mask: the upper half of a float is a bfloat16.
//
//   data[tile][depth][width]    low half: column `lane` of the tile, high half: column `width + lane`
#pragma once

#include <cstdint>

namespace ipex::runtime {

constexpr int64_t most_rows_of_bf16_product = 4;

struct Bf16Product {
  const float* rows;  // dense
  int64_t row_count;  // 1 to most_rows_of_bf16_product
  const uint32_t* data;
  int64_t depth;
  const float* bias;  // one per column, added to the sums; null for none
  float* result;      // dense
  int64_t columns;
};

struct Bf16ProductKernels {
  int64_t columns_of_a_tile;
  void (*multiply)(const Bf16Product&, int64_t first_tile, int64_t last_tile);
};

}  // namespace ipex::runtime
