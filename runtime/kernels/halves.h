// Numbers of 16 bits as floats and back, on plain pointers: for what is computed row by row, while the row is near.
#pragma once

#include <cstdint>

namespace ipex::runtime {

struct HalvesKernels {
  void (*widen)(const void* halves, int64_t count, float* floats);
  // floats = a + b, not rounded.
  void (*add)(const void* a, const void* b, int64_t count, float* floats);
  // Rounds to nearest, half to even.
  void (*narrow)(const float* floats, int64_t count, void* halves);
};

struct HalvesFormats {
  HalvesKernels bfloat16, float16;
};

}  // namespace ipex::runtime
