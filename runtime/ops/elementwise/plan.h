// The steps of a call as one program, or as several: a step whose result is smaller than what it becomes, as the gate of an
// image is, is computed once and not for each element that it is broadcast to.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/elementwise/eager_layout.h"
#include "ops/elementwise/steps.h"
#include "ops/norms/reduction.h"
#include "ops/quantized/stored_as.h"

namespace ipex::runtime {

using Layouts = c10::SmallVector<Layout, 12>;
using ValueNumbers = c10::SmallVector<size_t, 4>;

// `layouts` are those of the inputs and then of the results of the steps. Inputs are plain, of a dtype that there are
// kernels for or bools, and every step has a kernel. Gives the values that `results` names, which steps give; nothing where a
// program would have too many values.
// Inputs of a program of float32 may have 16 bits; where there is one result, it is stored so. `of_inputs` may be empty; else it has an affine for each input that is of
// 8-bit numbers, and the others are float32.
std::vector<at::Tensor> run_steps(at::TensorList inputs, at::ScalarType dtype, const NamedSteps& steps,
                                  const Layouts& layouts, const ValueNumbers& results, const StoredAs& as,
                                  const OptionalAffines& of_inputs);

struct Summed {
  IsSummed dimensions;
  bool keepdim, is_mean;
};

// The sum, or the mean, of what the last step gives; contiguous. Undefined where the program would have too many values, or
// where there are so few sums that threads would have nothing to do.
at::Tensor sum_of_steps(at::TensorList inputs, at::ScalarType dtype, const NamedSteps& steps, const Layouts& layouts,
                        const Summed& summed);

}  // namespace ipex::runtime
