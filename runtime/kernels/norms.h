// Normalisations of one row, on plain pointers. Each returns the mean square of the row, of which aten's way of summing
// may overflow. And Euclidean norms, sums, variances and largest elements.
#pragma once

#include <cstdint>

namespace ipex::runtime {

// Sums of what is near one another, the roots of sums of squares, means of squared distances from the mean, or the largest elements.
struct SumKernels {
  // Of the first `count` columns of rows that lie `stride` apart.
  void (*of_columns)(const float* x, int64_t rows, int64_t stride, int64_t count, float* sums);
  // Of `rows` rows of `count` elements that lie `stride` apart.
  void (*of_rows)(const float* x, int64_t rows, int64_t stride, int64_t count, float* sums);
};

struct NormKernels {
  // sum = a + b, which may be where one of them is.
  void (*add_row)(const float* a, const float* b, int64_t width, float* sum);
  // y = layer_norm(a + b). `sum` gets a + b, and may be `y`.
  float (*add_layer_norm_row)(const float* a, const float* b, const float* weight, const float* bias, float eps,
                              int64_t width, float* sum, float* y);
  // y = layer_norm(x). `weight` and `bias` may be null, which stands for 1 and 0.
  float (*layer_norm_row)(const float* x, const float* weight, const float* bias, float eps, int64_t width, float* y);
  float (*rms_norm_row)(const float* x, const float* weight, float eps, int64_t width, float* y);
  // The same of `count` rows that lie side by side, one element of each next to one another; the next ones are `stride` further.
  // Returns the sum of all squares.
  float (*rms_norm_columns)(const float* x, int64_t stride, const float* weight, float eps, int64_t width,
                            int64_t count, float* y, int64_t y_stride);
  SumKernels euclidean, sums, variances, maxima;
};

}  // namespace ipex::runtime
