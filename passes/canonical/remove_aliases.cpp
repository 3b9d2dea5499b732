// remove_aliases: another name for a tensor is the tensor.
//
//   before   %a = aten::alias(%x)    %y = aten::relu(%a)
//   after    %y = aten::relu(%x)
//
// Models that IPEX 2.x quantised have one around each op, between the rounding of a tensor and its layer.
// Leaves a tensor that must be one of its own, and graphs that change shapes in place.
#include "ir/aliasing.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  if (reshapes_in_place(context.graph)) return false;
  bool changed = false;
  for_each(context.graph, "aten::alias", [&](Node* node) {
    if (must_be_a_tensor_of_its_own(node->output())) return;
    context.applied(node, "removed");
    node->output()->replaceAllUsesWith(node->input(0));
    node->destroy();
    changed = true;
  });
  return changed;
}

}  // namespace

Pass remove_aliases() { return {"remove_aliases", run}; }

}  // namespace ipex::passes
