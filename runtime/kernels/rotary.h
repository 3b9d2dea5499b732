// Rotary embeddings, on plain pointers.
#pragma once

#include <cstdint>

namespace ipex::runtime {

struct RotaryKernels {
  // Rows of `size` numbers, turned: y = x * cos + r * sin, where r is x with its pairs of numbers exchanged and the first of
  // each pair negated. Pairs are `size / 2` apart, or neighbours. In formats of 16 bits both products are rounded too.
  using Rotate = void (*)(const void* x, const void* cos, const void* sin, int64_t size, bool of_neighbours, void* y);
  Rotate floats, bfloat16, float16;
};

}  // namespace ipex::runtime
