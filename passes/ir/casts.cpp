#include "ir/casts.h"

#include "ir/constants.h"
#include "ops/op_table.h"

namespace ipex::passes {

std::optional<Cast> cast_of(const Value* value) {
  Node* node = const_cast<Node*>(value->node());
  static const OpName to("aten::to.dtype"), lower("ipex::lower_precision"), restore("ipex::restore_precision");
  if (restore.is_of(node)) return Cast{node->input(0), at::kFloat, false};
  if (!to.is_of(node) && !lower.is_of(node)) return std::nullopt;
  const auto dtype = constant_integer(node->namedInput("dtype"));
  const bool is_plain = !node->hasNamedInput("copy") || is_false(node->namedInput("copy"));
  const bool keeps_layout = !node->hasNamedInput("memory_format") || node->namedInput("memory_format")->mustBeNone();
  if (!dtype || !is_plain || !keeps_layout) return std::nullopt;
  return Cast{node->input(0), static_cast<at::ScalarType>(*dtype), to.is_of(node)};
}

bool only_moves(const Node* node) {
  return has_trait(node, trait::chooses) && !has_trait(node, trait::joins) && node->outputs().size() == 1;
}

}  // namespace ipex::passes
