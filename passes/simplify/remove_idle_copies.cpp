// remove_idle_copies: `x[:, 1:] += y` adds in place, and does not copy the sum onto itself.
//
//   before   %p = aten::slice(%x, 1, 1, end, 1)    %s = aten::add_(%p, %y, 1)
//            %q = aten::slice(%x, 1, 1, end, 1)    %c = aten::copy_(%q, %s, non_blocking)
//   after    %p, %s as before                      %q, which is %c
//
// Python takes a piece, updates it and assigns it. A trace has all three, and aten copies though the two pieces are the same memory.
// An update refuses a piece that has one element in several places, as the copy does: so one must stand there. Filling is none.
// Declines in graphs that change shapes in place: the pieces may differ.
#include <algorithm>

#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// Whether both are the same tensor, or the same views of it.
bool are_the_same_piece(const Value* a, const Value* b) {
  while (a != b) {
    const Node *of_a = a->node(), *of_b = b->node();
    const Op* op = op_of(of_a);
    if (!op || op->memory != Memory::view || op_of(of_b) != op || of_a->outputs().size() != 1) return false;
    const auto of_first = of_a->inputs().slice(1), of_second = of_b->inputs().slice(1);
    if (!std::equal(of_first.begin(), of_first.end(), of_second.begin(), of_second.end(), is_same_argument))
      return false;
    a = of_a->input(0);
    b = of_b->input(0);
  }
  return true;
}

// What the update that gives `value` was given. The value itself where none does.
const Value* before_updates(const Value* value) {
  const auto updates = [](const Node* node) {
    const Op* op = op_of(node);
    return op && op->memory == Memory::itself && op->writes == Writes::elements && op->has(trait::keeps_dtype);
  };
  while (updates(value->node())) value = value->node()->input(0);
  return value;
}

bool run(Context& context) {
  std::optional<bool> reshapes;
  bool changed = false;
  for_each(context.graph, "aten::copy_", [&](Node* copy) {
    const Value* piece = before_updates(copy->input(1));
    if (piece == copy->input(1) || !are_the_same_piece(piece, copy->input(0))) return;
    if (!reshapes) reshapes = reshapes_in_place(context.graph);
    if (*reshapes) return context.declined(copy, "the graph changes shapes in place");
    context.merged(copy, "copies onto itself what was written by ", copy->input(1)->node());
    copy->output()->replaceAllUsesWith(copy->input(0));
    copy->destroy();
    changed = true;
  });
  return changed;
}

}  // namespace

Pass remove_idle_copies() { return {"remove_idle_copies", run, needs(integer_sizes)}; }

}  // namespace ipex::passes
