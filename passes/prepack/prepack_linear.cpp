// prepack_linear: split a linear with a constant weight into packing, done once, and running.
//
//   before   %y = aten::linear(%x, %w, %b)
//   after    %context = ipex::linear_prepack(%w, %b, %post_ops=[], ..)
//            %y = ipex::linear_run(%x, %context, %operands=[], %eager_layout=1)
//
// Declines when the weight or bias is no constant or not float32, bfloat16 or float16.
#include <torch/csrc/jit/ir/constants.h>

#include "anchor.h"
#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

std::optional<std::string> reason_against(const Node* node) {
  if (const auto reason = reason_against_weight(node)) return reason;
  const at::Tensor weight = torch::jit::toIValue(node->namedInput("weight"))->toTensor();
  if (weight.dim() != 2) return c10::str("its weight has ", weight.dim(), " dimensions, not 2");
  return reason_against_bias(node, weight.size(0));
}

bool run(Context& context) {
  bool changed = false;
  for_each(context.graph, "aten::linear", [&](Node* node) {
    if (const auto reason = reason_against(node)) return context.declined(node, *reason);
    context.applied(node, "prepacked");
    replace(node, Anchor::insert_before(node, "linear", node->inputs().slice(1), node->input(0)).run());
    changed = true;
  });
  return changed;
}

}  // namespace

Pass prepack_linear() { return {"prepack_linear", run}; }

}  // namespace ipex::passes
