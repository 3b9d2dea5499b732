// A convolution of single pixels, one of each channel by itself, and one of single pixels, as one pass over the image: a
// few rows at a time, so that what lies between two of them stays in the second cache. The outer layers may be missing.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/depthwise.h"
#include "onednn/primitive.h"

namespace ipex::runtime {

struct PixelLayer {
  Panels panels;
  ElementwiseSteps steps;
};

// Between them is an image of `channels`, the depthwise one's.
struct ConvolutionStrips : DepthwiseLayer {
  const float* image;  // channels-last
  int64_t images, height, width, image_channels;
  int64_t pixel_stride;              // as many channels, or more: of those that it is a piece of
  std::optional<PixelLayer> expand;  // else the image has these channels
  int64_t channels;
  std::optional<PixelLayer> project;  // else the result has them; its steps may have operands
  float* result;                      // dense, channels-last
  int64_t result_height, result_width;
};

// The middle layer alone. The image lies in pixels, `weight` is [window rows][window columns][channels].
ConvolutionStrips depthwise_strips(const at::Tensor& image, const at::Tensor& weight, at::IntArrayRef stride,
                                   at::IntArrayRef dilation, at::IntArrayRef padding, const ElementwiseSteps& steps,
                                   const at::Tensor& result);

void convolve(const ConvolutionStrips& work);

}  // namespace ipex::runtime
