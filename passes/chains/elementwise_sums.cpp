#include "chains/elementwise_sums.h"

#include <torch/csrc/jit/ir/constants.h>

namespace ipex::passes {

bool is_sum(const Node* node) {
  static const OpName sum("aten::sum.dim_IntList"), mean("aten::mean.dim");
  return sum.is_of(node) || mean.is_of(node);
}

const char* reason_to_sum_elsewhere(const Node* sum) {
  const auto dimensions = torch::jit::toIValue(sum->namedInput("dim"));
  if (!dimensions || !dimensions->isIntList() || dimensions->toIntVector().empty()) {
    return "it does not say which dimensions";
  }
  if (!torch::jit::toIValue(sum->namedInput("keepdim"))) return "whether it keeps its dimensions is not known";
  return sum->namedInput("dtype")->mustBeNone() ? nullptr : "it gives a dtype of its own";
}

const char* reason_to_store_terms(const Node* sum) {
  const Value* terms = sum->namedInput("self");
  if (terms->uses().size() > 1) return "others read what it sums";
  if (terms->node()->owningBlock() != sum->owningBlock()) return "it stands in another block than what it sums";
  return reason_to_sum_elsewhere(sum);
}

bool is_only_summed(const Value* value) {
  return value->uses().size() == 1 && is_sum(value->uses()[0].user) && value->uses()[0].offset == 0 &&
         !reason_to_store_terms(value->uses()[0].user);
}

}  // namespace ipex::passes
