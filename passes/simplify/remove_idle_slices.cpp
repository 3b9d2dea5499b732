// remove_idle_slices: `x[:, :, ::2]` cuts once.
//
//   before   %a = aten::slice(%x, 0, 0, end, 1)    %b = aten::slice(%a, 1, 0, end, 1)    %c = aten::slice(%b, 2, 0, end, 2)
//   after    %c = aten::slice(%x, 2, 0, end, 2)
//
// Tracing and scripting record a slice for each dimension that an index passes over, in whole. It costs a view, and hides
// from patterns that two pieces are of one tensor. It goes where the dimension is known to be there, and nobody can tell
// what it gives from what it was given. Else its readers have to be slices and selections of later dimensions: they refuse
// every tensor that it refuses, and whoever gets their results can't tell what they are views of.
// Declines where the graph changes sizes in place, and something may be overwritten between the two.
#include <algorithm>
#include <limits>

#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "ir/ranks.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// Whether it takes all of a dimension that is counted from the front.
bool is_idle(const Node* slice) {
  const Value *start = slice->input(2), *end = slice->input(3);
  const auto dim = constant_integer(slice->input(1));
  return dim && *dim >= 0 && (start->mustBeNone() || constant_integer(start) == 0) &&
         (end->mustBeNone() || constant_integer(end) == std::numeric_limits<int64_t>::max()) &&
         constant_integer(slice->input(4)) == 1;
}

bool cuts_later_dimension(const Use& use, int64_t dim) {
  static const OpName slice("aten::slice.Tensor"), select("aten::select.int");
  const bool cuts = use.offset == 0 && (slice.is_of(use.user) || select.is_of(use.user));
  return cuts && constant_integer(use.user->input(1)).value_or(-1) > dim;
}

bool run(Context& context) {
  std::vector<Node*> idle;
  Ranks ranks;
  const bool sizes_change = reshapes_in_place(context.graph);
  for_each(context.graph, "aten::slice.Tensor", [&](Node* node) {
    const auto& uses = node->output()->uses();
    if (!is_idle(node) || uses.empty()) return;
    const int64_t dim = *constant_integer(node->input(1));
    const auto is_written_before = [&](const Use& use) { return sizes_change && !can_wait(node, use.user); };
    const bool is_there = ranks.of(node->input(0)).least > dim && !must_be_a_tensor_of_its_own(node->output());
    const auto cuts_later = [&](const Use& use) { return cuts_later_dimension(use, dim); };
    if (!is_there && !std::all_of(uses.begin(), uses.end(), cuts_later)) return;
    if (std::any_of(uses.begin(), uses.end(), is_written_before)) {
      return context.declined(node, "something may be overwritten before it is read");
    }
    context.applied(node, "takes all of its dimension");
    node->output()->replaceAllUsesWith(node->input(0));
    idle.push_back(node);
  });
  for (Node* node : idle) node->destroy();
  return !idle.empty();
}

}  // namespace

Pass remove_idle_slices() { return {"remove_idle_slices", run, needs(lists_are_values)}; }

}  // namespace ipex::passes
