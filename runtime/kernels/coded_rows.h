// Rows of 8-bit codes, integers or short floats, that a scale of their own makes numbers: number = code * scale. On plain
// pointers, for what is computed row by row, while the row is near.
#pragma once

#include <cstdint>

namespace ipex::runtime {

struct CodedRowKernels {
  void (*widen)(const uint8_t* codes, int64_t count, float scale, float* floats);
  // Gives the scale with which the largest magnitude is the largest code. Rounds to nearest, half to even. A row with a
  // number that is not finite has codes of 0 and the scale NaN, one whose scale is no normal float is all 0.
  float (*narrow)(const float* floats, int64_t count, uint8_t* codes);
};

struct CodedRowFormats {
  CodedRowKernels int8, e4m3, e5m2;
};

}  // namespace ipex::runtime
