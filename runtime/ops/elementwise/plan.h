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
using Tensors = c10::SmallVector<at::Tensor, 8>;

// What the op does with inputs before the steps and with results after them, in the same pass over memory. A list is empty, or has
// something for each.
struct Ports {
  c10::SmallVector<bool, 12> restored = {};  // inputs that ipex::restore_precision is asked of
  OptionalAffines affines = {};              // inputs that are 8-bit numbers
  std::optional<at::ScalarType> dtype = {};  // that ipex::lower_precision is asked to give the results
  OptionalAffines rounded = {};              // results that become 8-bit numbers

  bool are_none() const { return restored.empty() && affines.empty() && !dtype && rounded.empty(); }
  bool restores(size_t input) const { return !restored.empty() && restored[input]; }
  std::optional<Affine> affine(size_t input) const { return affines.empty() ? std::nullopt : affines[input]; }
  StoredAs stored_as(size_t result) const { return {rounded.empty() ? std::nullopt : rounded[result], dtype}; }
};

// `layouts` are those of the inputs and then of the results of the steps. Inputs are plain, of a dtype that there are
// kernels for or bools, and every step has a kernel. Gives the values that `results` names, which steps give; nothing where a
// program would have too many values, or would read a result that another one stores in another dtype.
std::vector<at::Tensor> run_steps(at::TensorList inputs, at::ScalarType dtype, const NamedSteps& steps,
                                  const Layouts& layouts, const ValueNumbers& results, const Ports& ports);

struct Summed {
  IsSummed dimensions;
  bool keepdim, is_mean;
};

// The sum, or the mean, of what the last step gives; contiguous. Undefined where the program would have too many values, or
// where there are so few sums that threads would have nothing to do.
at::Tensor sum_of_steps(at::TensorList inputs, at::ScalarType dtype, const NamedSteps& steps, const Layouts& layouts,
                        const Summed& summed, const Ports& ports);

}  // namespace ipex::runtime
