#include "casts.h"

#include <torch/csrc/jit/ir/constants.h>

namespace ipex::passes {

using torch::jit::toIValue;

std::optional<Cast> cast_of(const Value* value) {
  Node* node = const_cast<Node*>(value->node());
  const std::string kind = kind_of(node);
  if (kind == "ipex::restore_precision") return Cast{node->input(0), at::kFloat, false};
  if (kind != "aten::to" && kind != "ipex::lower_precision") return std::nullopt;
  if (node->hasNamedInput("device") || !node->hasNamedInput("dtype")) return std::nullopt;
  const auto dtype = toIValue(node->namedInput("dtype"));
  if (!dtype || !dtype->isInt()) return std::nullopt;
  const bool is_plain = !node->hasNamedInput("copy") || toIValue(node->namedInput("copy")) == torch::jit::IValue(false);
  const bool keeps_layout = !node->hasNamedInput("memory_format") || node->namedInput("memory_format")->mustBeNone();
  if (!is_plain || !keeps_layout) return std::nullopt;
  return Cast{node->input(0), dtype->toScalarType(), kind == "aten::to"};
}

}  // namespace ipex::passes
