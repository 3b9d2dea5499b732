// What a call of an elementwise op gives the kernels: the inputs in one dtype, the steps, and the layouts that eager's results
// would have. Or why aten computes the call.
#pragma once

#include <optional>
#include <vector>

#include "ops/elementwise/plan.h"

namespace ipex::runtime {

struct KernelCall {
  // The steps have to outlive it. `results` names the values that are wanted.
  KernelCall(at::TensorList given, const NamedSteps& steps, const ValueNumbers& results, const Ports& ports);

  const NamedSteps& steps() const { return rounded_ ? *rounded_ : given_steps_; }

  Tensors inputs;
  at::ScalarType dtype;
  Layouts layouts;               // of the inputs and then of the steps' results
  const char* reason = nullptr;  // why aten computes it; null: the kernels can

 private:
  const NamedSteps& given_steps_;
  std::optional<NamedSteps> rounded_;
};

ValueNumbers last_of(at::TensorList inputs, const NamedSteps& steps);

// Step by step.
std::vector<at::Tensor> in_aten(at::TensorList inputs, const NamedSteps& steps, const ValueNumbers& results);

}  // namespace ipex::runtime
