// remove_in_place_activations: an activation that overwrites its input becomes one that doesn't, where nobody can tell.
//
//   before   %z = aten::relu_(%y)
//   after    %z = aten::relu(%y)      and later readers of %y read %z
//
// Declines when %y may be seen by somebody who would miss the write: a view, a graph input, a graph output, or memory
// that is not known to be %y's own (aliasing.h).
// Only ops that keep dtype and shape are listed; add_ does not (its result has the dtype of its first operand, add's is
// promoted), so it stays, and is fused as what it is. What no packed op has taken by the end goes back:
// finalize/restore_in_place_activations.cpp.
#include <torch/csrc/jit/passes/remove_mutation.h>

#include <unordered_set>

#include "aliasing.h"
#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  const OpName relu_("aten::relu_");
  std::unordered_set<const Node*> before;
  for_each(context.graph, "aten::relu", [&](Node* node) { before.insert(node); });
  const bool changed = torch::jit::RemoveTensorMutation(
      context.graph, [&](Node* node) { return relu_.is_of(node) && is_fresh(node->input(0)); });
  for_each(context.graph, "aten::relu", [&](Node* node) {
    if (!before.count(node)) node->i_(was_in_place(), 1);
  });
  for_each(context.graph, "aten::relu_",
           [&](Node* node) { context.declined(node, "what it overwrites may be read elsewhere"); });
  return changed;
}

}  // namespace

Pass remove_in_place_activations() { return {"remove_in_place_activations", run}; }

}  // namespace ipex::passes
