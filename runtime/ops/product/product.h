// Products of float32 rows and a packed weight, by kernels of our own (kernels/few_rows.h, kernels/many_rows.h). They read
// the weight that oneDNN's primitives read, and make no primitive.
#pragma once

#include "kernels/few_rows.h"
#include "kernels/many_rows.h"
#include "onednn/primitive.h"

namespace ipex::runtime {

// With more rows, arithmetic is all that counts.
constexpr int64_t most_rows_of_a_small_product = 16;

// Whether the kernels read such panels.
bool can_multiply(const Panels& panels);

// result = steps(rows . panels). `rows` and `result` are dense; a row has `depth` elements. The result may be where the
// operand of the first step is, if that adds a full one.
void multiply(const float* rows, int64_t row_count, int64_t depth, const Panels& panels, const ElementwiseSteps& steps,
              float* result);

}  // namespace ipex::runtime
