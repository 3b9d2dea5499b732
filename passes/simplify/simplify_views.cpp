// simplify_views: a view of a view is a view of the tensor itself.
//
//   before   %a = aten::view(%x, [6, 4])    %b = aten::view(%a, [2, 3, 4])
//   after    %b = aten::view(%x, [2, 3, 4])
//
// The outer one may be a reshape: what can't be viewed in these sizes can't be through others, so it copies or not as
// before. An inner reshape stays: it may have copied where a direct one need not, and strides would be others.
// Declines when sizes are not constants, or when the inner view refuses tensors that the outer one would take, as
// [-1, 7] refuses six elements and [-1] does not; and when something may be overwritten between the two: strides change
// in place as well.
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// How many elements a tensor has to have for a view in these sizes.
struct Demand {
  int64_t elements = 1;
  bool or_a_multiple = false;

  explicit Demand(const std::vector<int64_t>& sizes) {
    for (const int64_t size : sizes) {
      if (size == -1) {
        or_a_multiple = true;
      } else {
        elements *= size;
      }
    }
  }

  // Whether what meets this demand meets the other one. Not where sizes are 0, and -1 may be anything.
  bool implies(const Demand& other) const {
    if (elements <= 0 || other.elements <= 0) return false;
    return other.or_a_multiple ? elements % other.elements == 0 : !or_a_multiple && elements == other.elements;
  }
};

bool run(Context& context) {
  bool changed = false;
  const auto simplify = [&](Node* outer) {
    Node* inner = outer->input(0)->node();
    static const OpName view("aten::view.");
    if (!view.is_of(inner)) return;
    const auto first = integers_of(inner->input(1)), second = integers_of(outer->input(1));
    if (!first || !second) return context.declined(outer, "its sizes are not constants");
    if (!Demand(*second).implies(Demand(*first))) {
      return context.declined(outer, describe(inner) + " refuses some that this one takes");
    }
    if (const auto reason = reason_against_waiting(inner, outer)) return context.declined(outer, *reason);
    context.merged(outer, "merged with ", inner);
    outer->replaceInput(0, inner->input(0));
    changed = true;
  };
  for (const char* kind : {"aten::view.", "aten::reshape"}) for_each(context.graph, kind, simplify);
  return changed;
}

}  // namespace

Pass simplify_views() { return {"simplify_views", run, needs(lists_are_values, plain_views)}; }

}  // namespace ipex::passes
