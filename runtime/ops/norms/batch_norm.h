// batch_norm in eval mode, and what follows it if so: what the ops that compute it have in common.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ops/norms/activations.h"

namespace ipex::runtime {

using OptionalTensor = std::optional<at::Tensor>;

struct BatchNorm {
  OptionalTensor weight, bias, mean, variance;
  double eps;
  bool relu;

  // Why the kernels can't take these parameters for so many channels. Null when they can.
  const char* reason_for_aten(int64_t channels) const;
  // The scale of each channel, and after them the shifts. Undefined where a parameter is so large that aten's order of
  // adding and multiplying matters. Asked only where there is no reason for aten.
  at::Tensor scales_and_shifts() const;
};

// ipex::batch_norm.
at::Tensor batch_norm(const at::Tensor& x, const BatchNorm& norm, const Activations& activations);

}  // namespace ipex::runtime
