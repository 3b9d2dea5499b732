// Images made larger or smaller, on plain pointers.
#pragma once

#include <cstdint>

namespace ipex::runtime {

// What is seen of one dimension of an image, place by place of the result: `count` of its pixels, 1, 2 or 4, and what each
// weighs. A single one counts as it is, without its weight.
struct Taps {
  int64_t count;
  const int32_t* pixels;
  const float* weights;
};

struct ResampleKernels {
  // Row `row` of the result, of an image with its channels side by side. `scratch` has room for a row of the image.
  void (*row_of_pixels)(const float* image, int64_t image_width, int64_t channels, const Taps& vertical,
                        const Taps& horizontal, int64_t row, int64_t result_width, float* scratch, float* result);
  // Rows `first` to `end` of the result, of one channel of an image. `scratch` has room for `vertical.count` rows of the
  // result.
  void (*rows_of_plane)(const float* plane, int64_t image_width, const Taps& vertical, const Taps& horizontal,
                        int64_t first, int64_t end, int64_t result_width, float* scratch, float* result);
};

}  // namespace ipex::runtime
