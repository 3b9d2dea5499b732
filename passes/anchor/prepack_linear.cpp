// prepack_linear: split a linear with a constant weight into packing, done once, and running.
//
//   before   %y = aten::linear(%x, %w, %b)
//   after    %context = ipex::linear_prepack(%w, %b, %post_ops=[], ..)
//            %y = ipex::linear_run(%x, %context, %operands=[], %eager_layout=1)
//
// A bias that is computed is added after it, in place: so dtype and shape stay those of the linear.
// Declines when the weight is no constant, and when weight or bias are not float32, bfloat16 or float16.
#include <torch/csrc/jit/ir/constants.h>

#include "anchor/anchor.h"
#include "anchor/prepack.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool has_computed_bias(const Node* node) { return !torch::jit::toIValue(node->namedInput("bias")); }

// Lets an addition of its own follow the linear.
void separate_bias(Node* node) {
  Graph& graph = *node->owningGraph();
  Value* bias = node->namedInput("bias");
  const torch::jit::WithInsertPoint guard(node);
  node->replaceInput(2, graph.insertConstant(torch::jit::IValue()));
  const torch::jit::WithInsertPoint after(node->next());
  // Not found by its arguments: a tensor would pass for a number.
  Node* add = graph.create(c10::aten::add_, {node->output(), bias, graph.insertConstant(1)});
  Value* sum = graph.insertNode(add)->output();
  add->setSourceRange(node->sourceRange());
  sum->copyMetadata(node->output());
  node->output()->replaceAllUsesAfterNodeWith(add, sum);
}

bool run(Context& context) {
  bool changed = false;
  for_each(context.graph, "aten::linear", [&](Node* node) {
    if (const auto reason = reason_against_prepacking_linear(node)) return context.declined(node, *reason);
    if (has_computed_bias(node)) separate_bias(node);
    context.applied(node, "prepacked");
    replace(node, Anchor::insert_before(node, "linear", node->inputs().slice(1), node->input(0)).run());
    changed = true;
  });
  return changed;
}

}  // namespace

std::optional<std::string> reason_against_prepacking_linear(const Node* node) {
  if (const auto reason = reason_against_weight(node)) return reason;
  const at::Tensor weight = torch::jit::toIValue(node->namedInput("weight"))->toTensor();
  if (weight.dim() != 2) return c10::str("its weight has ", weight.dim(), " dimensions, not 2");
  return has_computed_bias(node) ? std::nullopt : reason_against_bias(node, weight.size(0));
}

Pass prepack_linear() {
  return {"prepack_linear", run, needs(one_linear_pattern) + establishes(anchors_prepacked) + breaks(aten_layers)};
}

}  // namespace ipex::passes
