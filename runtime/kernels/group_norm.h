// Normalisation of groups of channels, on plain pointers. A group lies as one run of elements, or, where an image is
// channels-last, as some channels of each pixel.
//
// Elements are float32 or of 16 bits, and are computed with as float32.
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace ipex::runtime {

// Sums of x - around, and of its square.
struct DistanceSums {
  double distance = 0, square = 0;
};

// One number per channel: y = (x - around) * scale + shift.
struct ChannelMaps {
  const float *around, *scale, *shift;
};

struct GroupNormKernels {
  // Of one element.
  float (*element)(const void* x, int64_t i);
  // Adds a run of elements to `sums`.
  void (*sum_run)(const void* x, int64_t count, float around, DistanceSums& sums);
  // Adds pixels to the sums of each group. Pixels are `pitch` elements apart; `groups` of `group_width` channels are looked
  // at, and `around` is given per channel. Few hundred pixels at a time: the sum of a channel is a float.
  void (*sum_pixels)(const void* x, int64_t pixels, int64_t pitch, int64_t groups, int64_t group_width,
                     const float* around, DistanceSums* sums);
  // y of a run of elements, and then the steps, which have no operands. Each `size` elements are a channel; the first
  // ones of the first channel, `skipped` of them, are not in the run.
  void (*normalize_run)(const void* x, int64_t count, int64_t size, int64_t skipped, const ChannelMaps& maps,
                        const ElementwiseSteps& steps, void* y);
  // The same of some channels of pixels, which are `pitch` elements apart.
  void (*normalize_pixels)(const void* x, int64_t pixels, int64_t pitch, int64_t channels, const ChannelMaps& maps,
                           const ElementwiseSteps& steps, void* y);
};

// One per format of elements.
struct GroupNormFormats {
  GroupNormKernels floats, bfloat16, float16;
};

}  // namespace ipex::runtime
