// Convolutions of an image of few channels, on plain pointers, for an image that lies in any order: in planes or pixel by pixel.
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace ipex::runtime {

// Down or across. Beyond the image are zeros.
struct ConvolutionAxis {
  int64_t image, image_step;  // how many pixels, and the distance of neighbours in floats
  int64_t window, stride, dilation, padding;
  int64_t result;
};

struct FewChannelsWork {
  const float* image;
  int64_t channels, channel_step;
  ConvolutionAxis down, across;
  // [vectors of the result's channels][channels][window's rows][window's columns][width]
  const float* weights;
  ElementwiseSteps steps;  // columns are the result's channels
  float* result;           // channels side by side, then pixels, then rows
  int64_t first_pixel;     // where it begins among the pixels that operands have
  bool is_large;           // results that no cache holds
};

struct FewChannelsKernels {
  int64_t width;  // so many channels fill a register
  void (*convolve)(const FewChannelsWork&, int64_t first_row, int64_t last_row);
};

}  // namespace ipex::runtime
