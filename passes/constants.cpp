#include "constants.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

namespace ipex::passes {

std::optional<double> number(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  if (!constant) return std::nullopt;
  if (constant->isInt() || constant->isDouble()) return constant->toScalar().toDouble();
  if (!constant->isTensor()) return std::nullopt;
  const at::Tensor tensor = constant->toTensor();
  const bool is_real = tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided &&
                       tensor.dim() == 0 && tensor.scalar_type() != at::kBool && !tensor.is_complex();
  return is_real ? std::optional(tensor.item<double>()) : std::nullopt;
}

}  // namespace ipex::passes
