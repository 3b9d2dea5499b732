// Convolutions of each channel by itself, on plain pointers: rows of an image whose channels are side by side.
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace ipex::runtime {

// A row of the result, and what its windows see of the image. Beyond the image are zeros.
struct DepthwiseRow {
  const float* rows;  // of the image, those that the windows reach
  int64_t row_count;
  int64_t first_window_row;  // the window's that meets the first of them
  int64_t width;             // pixels
  const float* weights;      // [window rows][window_width][channels]
  int64_t window_width;
  int64_t stride;
  int64_t padding;         // to the left
  ElementwiseSteps steps;  // columns are the channels; none has an operand
  float* result;
  int64_t result_width;
};

struct DepthwiseKernels {
  void (*convolve)(const DepthwiseRow&);
};

}  // namespace ipex::runtime
