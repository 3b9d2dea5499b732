// Pooling of images and volumes that are channels-last, on plain pointers. A contiguous one is many of one channel.
#pragma once

#include <cstdint>

namespace ipex::runtime {

// Of one dimension: how many pixels there are, and how the windows lie on them.
struct Windows {
  int64_t pixels, size, stride, padding, dilation;
};

struct Pooling {
  int64_t channels;
  Windows depth, vertical, horizontal;
  int64_t result_width;
  // Of means: whether windows count the padding that they reach into, and what to divide by instead of a count, if not by 0.
  bool counts_padding = true;
  int64_t divisor = 0;
};

// Row `row` of slice `slice` of the result. Images have one slice.
template <typename T>
using PoolRow = void (*)(const T* image, const Pooling& pooling, int64_t slice, int64_t row, T* result);

// The depth of an image.
constexpr Windows one_slice{.pixels = 1, .size = 1, .stride = 1, .padding = 0, .dilation = 1};

struct PoolingKernels {
  // The largest element of each window, or NaN where it has one.
  PoolRow<float> max_pool_row;
  PoolRow<uint8_t> max_pool_row_of_bytes;
  // Of as many channels as fill a register, or more.
  PoolRow<uint16_t> max_pool_row_of_bfloat16, max_pool_row_of_float16;
  // The sum of each window by the number of its pixels.
  PoolRow<float> mean_pool_row;
  // Of each channel the sum over some rows of an image.
  void (*sum_rows)(const float* rows, int64_t count, int64_t image_width, int64_t channels, float* sums);
  // Of each channel the sum of `count` such sums, by the number of pixels.
  void (*average_of_sums)(const float* sums, int64_t count, int64_t pixels, int64_t channels, float* result);
  // The mean over all pixels, of `channels` of them, of the first `count` channels: of 8-bit numbers, which stand for
  // (number - zero_point) * scale. Of at most most_pixels, whose sum is an integer.
  void (*average_bytes)(const uint8_t* image, int64_t pixels, int64_t channels, int64_t count, float scale,
                        float zero_point, float* result);
  static constexpr int64_t most_pixels = int64_t{1} << 23;
};

}  // namespace ipex::runtime
