#include "chains/elementwise_casts.h"

#include "ir/casts.h"

namespace ipex::passes {

Node* restoring_cast(const Value* value) {
  static const OpName restore("ipex::restore_precision");
  for (; !restore.is_of(value->node()); value = value->node()->input(0)) {
    if (!only_moves(value->node()) || value->uses().size() != 1) return nullptr;
  }
  return const_cast<Node*>(value->node());
}

Value* without_cast(Value* value) {
  const Node* cast = restoring_cast(value);
  if (value->node() == cast) return cast->input(0);
  for (Value* moved = value;; moved = moved->node()->input(0)) {
    moved->setType(c10::TensorType::get());  // it may say float32
    if (moved->node()->input(0) != cast->output()) continue;
    moved->node()->replaceInput(0, cast->input(0));
    return value;
  }
}

std::optional<at::ScalarType> dtype_of_all_readers(const Value* value) {
  static const OpName lower("ipex::lower_precision");
  std::optional<at::ScalarType> common;
  for (const Use& use : value->uses()) {
    const auto cast = lower.is_of(use.user) ? cast_of(use.user->output()) : std::nullopt;
    if (!cast || cast->dtype != common.value_or(cast->dtype)) return std::nullopt;
    common = cast->dtype;
  }
  return common;
}

void remove_casts_of(Value* value) {
  value->setType(c10::TensorType::get());  // it may say float32
  const std::vector<Use> uses = value->uses();
  for (const Use& use : uses) {
    use.user->output()->replaceAllUsesWith(value);
    use.user->destroy();
  }
}

}  // namespace ipex::passes
