#include "anchor/batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include "ir/constants.h"

namespace ipex::passes {

using torch::jit::toIValue;

std::optional<std::string> read_batch_norm(const Node* node, int64_t channels, ChannelAffine& affine) {
  if (!is_false(node->namedInput("training"))) return "it is not in eval mode";
  const auto eps = toIValue(node->namedInput("eps"));
  if (!eps) return "its eps is not a constant";
  std::vector<at::Tensor> parts;
  for (const auto& [name, absent] :
       {std::pair{"running_mean", 0.0}, {"running_var", 1.0}, {"weight", 1.0}, {"bias", 0.0}}) {
    const auto value = toIValue(node->namedInput(name));
    if (!value) return std::string("its ") + name + " is not a constant";
    const bool may_be_absent = name == std::string_view("weight") || name == std::string_view("bias");
    if (!value->isTensor() && !may_be_absent) return std::string("it has no ") + name;
    const at::Tensor part =
        value->isTensor() ? value->toTensor().to(at::kDouble) : at::full({channels}, absent, at::kDouble);
    if (part.dim() != 1 || part.size(0) != channels) return std::string("its ") + name + " has the wrong size";
    parts.push_back(part);
  }
  affine.scale = parts[2] / (parts[1] + eps->toDouble()).sqrt();
  affine.shift = parts[3] - parts[0] * affine.scale;
  if (!affine.scale.to(at::kFloat).isfinite().all().item<bool>()) return "its statistics are not finite";
  return std::nullopt;
}

}  // namespace ipex::passes
