// remove_dropout: in eval mode dropout hands its input through.
//
//   before   %y = aten::dropout(%x, %p, %train=0)
//   after    %y is %x
//
// Declines when %train is true or no constant: then the model asked for it.
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"
#include "told_aliases.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  bool changed = false;
  for (const char* kind : {"aten::dropout", "aten::feature_dropout", "aten::dropout_"}) {
    for_each(context.graph, kind, [&](Node* node) {
      if (!is_false(node->namedInput("train"))) return context.declined(node, "it is not in eval mode");
      context.applied(node, "removed");
      node->output()->replaceAllUsesWith(node->input(0));
      node->destroy();
      changed = true;
    });
  }
  return changed | remove_told_aliases(context.graph);
}

}  // namespace

Pass remove_dropout() { return {"remove_dropout", run, establishes(no_dropout)}; }

}  // namespace ipex::passes
