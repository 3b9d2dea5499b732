// restore_in_place_activations: an activation that no packed op took overwrites its input again, as the model has it.
//
//   before   %z = aten::relu(%y)      made of aten::relu_(%y) by remove_in_place_activations
//   after    %z = aten::relu_(%y)
//
// In place it costs no memory; and TorchScript differentiates the other form itself, which does not always give the
// gradients of the model, or refuses tensors made in inference mode.
// Stays out of place where %y has another reader, or is not known to have memory of its own.
#include "aliasing.h"
#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  bool changed = false;
  for_each(context.graph, "aten::relu", [&](Node* node) {
    if (!node->hasAttribute(was_in_place())) return;
    node->removeAttribute(was_in_place());
    Value* y = node->input(0);
    if (y->uses().size() != 1 || !is_fresh(y) || y->node()->owningBlock() != node->owningBlock()) return;
    const torch::jit::WithInsertPoint guard(node);
    replace(node, context.graph->insertNode(context.graph->create(Symbol::fromQualString("aten::relu_"), {y})));
    changed = true;
  });
  return changed;
}

}  // namespace

Pass restore_in_place_activations() { return {"restore_in_place_activations", run}; }

}  // namespace ipex::passes
