// Convolutions of each channel by itself, on plain pointers, for an image whose channels are side by side.
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace ipex::runtime {

// Rows of pixels.
template <typename Element>
struct PixelRows {
  Element* first;
  int64_t width, pixel_stride, row_stride;
};

// Of a layer.
struct DepthwiseLayer {
  const float* weights;  // [window_height][window_width][channels]
  int64_t window_height, window_width;
  int64_t stride_down, stride;
  int64_t dilation_down, dilation;
  int64_t padding_top, padding_left;
  ElementwiseSteps steps;  // columns are the channels
};

// The image's row `top` is the first that is there, and beyond `bottom` are none: beyond the image are zeros.
struct DepthwiseWork : DepthwiseLayer {
  PixelRows<const float> image;
  int64_t top, bottom;
  PixelRows<float> result;
  int64_t result_top;   // the result's first row
  int64_t first_pixel;  // where it begins among the pixels that operands have
};

struct DepthwiseKernels {
  int64_t width;  // so many channels fill a register
  // Rows of the result, and channels: the first is a multiple of `width`.
  void (*convolve)(const DepthwiseWork&, int64_t first_row, int64_t last_row, int64_t first_channel,
                   int64_t last_channel);
};

}  // namespace ipex::runtime
