// Products of a few float32 rows and a packed weight: see kernels/few_rows.h. Such products wait for memory, and the
// smallest for the calls around them: this reads the weight that oneDNN's primitives read, and makes no primitive.
#pragma once

#include "kernels/few_rows.h"
#include "onednn/primitive.h"

namespace ipex::runtime {

// Whether the kernel reads such panels.
bool can_multiply_few_rows(const Panels& panels);

// result = steps(rows . panels). `rows` and `result` are dense; a row has `depth` elements.
void multiply_few_rows(const float* rows, int64_t row_count, int64_t depth, const Panels& panels,
                       const ElementwiseSteps& steps, float* result);

}  // namespace ipex::runtime
