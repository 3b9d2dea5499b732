// softmax of rows and of columns, and its logarithm, on plain pointers.
#pragma once

#include <cstdint>

namespace ipex::runtime {

struct SoftmaxKernels {
  // False when a row has NaN or +infinity, or -infinity alone: the result is then incomplete.
  bool (*softmax_rows)(const float* x, int64_t rows, int64_t width, float* y);
  // The same of each of `columns` columns, in rows that are `stride` apart.
  bool (*softmax_columns)(const float* x, int64_t rows, int64_t stride, int64_t columns, float* y);
  bool (*log_softmax_rows)(const float* x, int64_t rows, int64_t width, float* y);
  bool (*log_softmax_columns)(const float* x, int64_t rows, int64_t stride, int64_t columns, float* y);
};

}  // namespace ipex::runtime
