// What attention has to know about numbers before it leaves them to a fused kernel, on plain pointers.
#pragma once

#include <cstdint>

namespace ipex::runtime {

struct AttentionKernels {
  // The largest magnitude, as the bits of a float: NaN and infinity are larger than all numbers.
  uint32_t (*largest_magnitude)(const float* data, int64_t count);
  // Whether each row has a finite element, and none that is NaN or +infinity.
  bool (*every_row_is_open)(const float* mask, int64_t rows, int64_t width);
};

}  // namespace ipex::runtime
