// Products of a few float32 rows and a packed weight: see kernels/few_rows.h. Such products wait for memory, and the
// smallest for the calls around them: this reads the weight that oneDNN's primitives read, and makes no primitive.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/few_rows.h"
#include "onednn/primitive.h"

namespace ipex::runtime {

// Whether the kernel reads such panels.
bool can_multiply_few_rows(const Panels& panels);

// result = steps(input . panels), for dense tensors.
void multiply_few_rows(const at::Tensor& input, const Panels& panels, const ElementwiseSteps& steps,
                       const at::Tensor& result);

}  // namespace ipex::runtime
