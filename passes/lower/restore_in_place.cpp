// restore_in_place: an op that no packed op took overwrites its input again, as the model has it.
//
//   before   %z = aten::relu(%y)      made of aten::relu_(%y)
//   after    %z = aten::relu_(%y)
//
// In place it costs no memory; and TorchScript differentiates some of the other forms itself, which does not always give the
// gradients of the model, or refuses tensors made in inference mode.
// Stays out of place where %y has another reader, or is not known to have memory of its own.
#include "ir/aliasing.h"
#include "ir/graph_walk.h"
#include "ir/unseen_write.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  bool changed = false;
  for_each_node(context.graph->block(), [&](Node* node) {
    const auto in_place = separated_op(node);
    if (!in_place) return;
    node->removeAttribute(was_in_place());
    Value* y = node->input(0);
    if (y->uses().size() != 1 || !is_fresh(y) || y->node()->owningBlock() != node->owningBlock()) return;
    const torch::jit::WithInsertPoint guard(node);
    replace(node, context.graph->insertNode(context.graph->create(*in_place, node->inputs())));
    changed = true;
  });
  return changed;
}

}  // namespace

Pass restore_in_place() { return {"restore_in_place", run}; }

}  // namespace ipex::passes
