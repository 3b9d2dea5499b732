// Pooling of images that are channels-last, on plain pointers.
#pragma once

#include <cstdint>

namespace ipex::runtime {

// Of one dimension: how many pixels there are, and how the windows lie on them.
struct Windows {
  int64_t pixels, size, stride, padding, dilation;
};

struct Pooling {
  int64_t channels;
  Windows vertical, horizontal;
  int64_t result_width;
};

struct PoolingKernels {
  // Row `row` of the result: the largest element of each window, or NaN where it has one.
  void (*max_pool_row)(const float* image, const Pooling& pooling, int64_t row, float* result);
  // The same of 8-bit numbers.
  void (*max_pool_row_of_bytes)(const uint8_t* image, const Pooling& pooling, int64_t row, uint8_t* result);
  // The mean over all pixels, of `channels` of them, of the first `count` channels.
  void (*average)(const float* image, int64_t height, int64_t image_width, int64_t channels, int64_t count,
                  float* result);
};

}  // namespace ipex::runtime
