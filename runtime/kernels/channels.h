// What is done to the channels of images that are channels-last, and of planes, on plain pointers.
#pragma once

#include <cstdint>

namespace ipex::runtime {

struct ChannelKernels {
  // The channels of each pixel are a table of groups x width, whose rows lie `stride` apart: it is transposed, and dense.
  void (*shuffle)(const float* x, int64_t pixels, int64_t groups, int64_t width, int64_t stride, float* y);
  // The same of 8-bit numbers.
  void (*shuffle_bytes)(const uint8_t* x, int64_t pixels, int64_t groups, int64_t width, int64_t stride, uint8_t* y);
  // scale and shift such that batch_norm is x * scale + shift. `weight` and `bias` may be null. False when one is so
  // large, or not finite, that it matters in which order aten adds and multiplies.
  bool (*scales_and_shifts)(const float* weight, const float* bias, const float* mean, const float* variance, float eps,
                            int64_t channels, float* scale, float* shift);
  // y = x * scale + shift, and relu of it if so: pixels with their channels side by side, and one channel of an image.
  // A pixel of x and of y may have more channels, `x_pitch` and `pitch` of them, of which these are some.
  void (*scale_pixels)(const float* x, int64_t x_pitch, const float* scale, const float* shift, int64_t pixels,
                       int64_t channels, bool relu, float* y, int64_t pitch);
  // The same, rounded to 8-bit numbers as quantize.h has it.
  void (*scale_pixels_to_bytes)(const float* x, int64_t x_pitch, const float* scale, const float* shift, int64_t pixels,
                                int64_t channels, bool relu, float inverse_scale, float zero_point, uint8_t* y,
                                int64_t pitch);
  void (*scale_plane)(const float* x, float scale, float shift, int64_t size, bool relu, float* y);
  // For each output: its bias, and the sum of the inputs times its row of `weight`, for `pixels` of planes of `plane`
  // elements. `bias` may be null.
  void (*mix_planes)(const float* x, const float* weight, const float* bias, int64_t plane, int64_t pixels,
                     int64_t inputs, int64_t outputs, float* y);
};

}  // namespace ipex::runtime
