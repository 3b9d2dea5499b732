// What a call of an elementwise op gives the kernels: the inputs in one dtype, the steps, and the layouts that eager's results
// would have. Or why aten computes the call.
#pragma once

#include <optional>
#include <vector>

#include "ops/elementwise/plan.h"

namespace ipex::runtime {

struct KernelCall {
  // The steps have to outlive it. `results` names the values that are wanted. `restored` is empty, or says which inputs are
  // taken as float32 where they have 16 bits.
  KernelCall(at::TensorList given, const NamedSteps& steps, const ValueNumbers& results,
             at::ArrayRef<bool> restored = {});

  const NamedSteps& steps() const { return rounded_ ? *rounded_ : given_steps_; }

  std::vector<at::Tensor> inputs;
  at::ScalarType dtype;
  Layouts layouts;               // of the inputs and then of the steps' results
  const char* reason = nullptr;  // why aten computes it; null: the kernels can

 private:
  const NamedSteps& given_steps_;
  std::optional<NamedSteps> rounded_;
};

// Which inputs ipex::restore_precision is asked of.
c10::SmallVector<bool, 12> flags_of(at::TensorList inputs, const c10::List<bool>& flags);

// What it makes of them.
std::vector<at::Tensor> restored_inputs(at::TensorList inputs, at::ArrayRef<bool> restored);

ValueNumbers last_of(at::TensorList inputs, const NamedSteps& steps);

// Whether steps of this dtype get bools where they take them, and floats elsewhere; null where they do.
const char* reason_for_dtypes(at::TensorList inputs, const NamedSteps& steps, const ValueNumbers& results);

// The layouts of the inputs and then of the steps' results, as eager would have them. Why that is not known, or null.
const char* follow_layouts(at::TensorList inputs, const NamedSteps& steps, Layouts& layouts);

// Step by step.
std::vector<at::Tensor> in_aten(at::TensorList inputs, const NamedSteps& steps, const ValueNumbers& results);

}  // namespace ipex::runtime
