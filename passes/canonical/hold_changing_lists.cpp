// hold_changing_lists: a list that changes is no list of known elements.
//
//   before   %sizes = prim::ListConstruct(%n, %two)    %s = aten::_set_item(%sizes, %one, %three)    %y = aten::view(%x, %sizes)
//   after    %sizes = prim::ListConstruct(%n, %two)    %held = prim::unchecked_cast(%sizes)
//            %s = aten::_set_item(%held, %one, %three)    %y = aten::view(%x, %held)
//
// The cast does nothing. It stands between the list and all its users, so no pattern reads elements that are others by then.
// What is left of lists is constant: a prim::ListConstruct that has other users than such a cast is never changed. All passes count
// on that: it can't be disabled.
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  bool changed = false;
  for_each(context.graph, "prim::ListConstruct", [&](Node* node) {
    Value* list = node->output();
    if (is_held(list) || !may_change(list)) return;
    if (!node->inputs().empty()) context.declined(node, "the list changes after it is made");
    Node* held = context.graph->create(c10::prim::unchecked_cast)->insertAfter(node);
    held->setSourceRange(node->sourceRange());
    held->output()->setType(list->type());
    list->replaceAllUsesWith(held->output());
    held->addInput(list);
    changed = true;
  });
  return changed;
}

}  // namespace

Pass hold_changing_lists() {
  return {"hold_changing_lists", run, establishes(lists_are_values), /*reasons_stay=*/false, /*is_needed=*/true};
}

}  // namespace ipex::passes
