// lay_out_elementwise: a chain of elementwise ops whose result is reshaped gives it in one piece, and one whose result is read
// slice by slice gives each slice so.
//
//   before   %y = ipex::elementwise(%inputs, %steps)                        %z = aten::reshape(%y, %sizes)
//   after    %y = ipex::elementwise(%inputs, %steps, %in_one_piece=True)    %z = aten::reshape(%y, %sizes)
//
//   before   %y = ipex::elementwise(%inputs, %steps)
//            %a = aten::select(%y, 2, 0)    %b = aten::select(%y, 2, 1)    ..
//   after    %y = ipex::elementwise(%inputs, %steps, %outermost=2)
//
// as the steps of a recurrence over time, of state space models for instance, which a trace writes down one by one: each reads
// short runs far apart.
//
// Eager's layout follows from the first input whose strides tell dimensions apart, as one does that is a permutation: the reshape
// would copy.
// Leaves a chain that somebody else reads, or whose strides somebody sees. Chains read the slices: those see the order of
// dimensions only, which stays.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "anchor/anchor.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/stride_readers.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// Whether the reader wants what it reads in one piece.
bool reshapes(const Use& use) {
  static const OpName reshape("aten::reshape"), flatten("aten::flatten"), rearrange("ipex::rearrange");
  if (rearrange.is_of(use.user)) {
    const auto steps = torch::jit::toIValue(use.user->input(1));
    const auto first = steps ? steps->toListRef()[0].toStringRef() : "";
    return first == "reshape" || first == "flatten";
  }
  return reshape.is_of(use.user) || flatten.is_of(use.user);
}

// The dimension along which all of these take one index each.
std::optional<int64_t> sliced_dimension(const std::vector<Use>& uses) {
  static const OpName select("aten::select.int");
  std::optional<int64_t> common;
  for (const Use& use : uses) {
    const auto dimension = select.is_of(use.user) ? constant_integer(use.user->input(1)) : std::nullopt;
    if (!dimension || dimension != common.value_or(*dimension)) return std::nullopt;
    common = dimension;
  }
  return common;
}

bool is_read_by_chains(const Use& slice) {
  static const Symbol chain = Symbol::fromQualString("ipex::elementwise");
  const auto reads_in_order = [](const Use& reader) { return reader.user->kind() == chain; };
  const auto& uses = slice.user->output()->uses();
  return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
    const auto& readers = makes_list(use.user) ? use.user->output()->uses() : uses;
    return std::all_of(readers.begin(), readers.end(), reads_in_order);
  });
}

bool lay_out_slices(Context& context) {
  bool changed = false;
  for_each(context.graph, "ipex::elementwise.", [&](Node* node) {
    std::vector<Use> uses = node->output()->uses();
    std::erase_if(uses, reads_only_sizes);
    const auto dimension = uses.size() > 1 ? sliced_dimension(uses) : std::nullopt;
    if (!dimension || !std::all_of(uses.begin(), uses.end(), is_read_by_chains)) return;
    context.applied(node, "gives each of its slices in one piece");
    set_argument(node, "outermost", *dimension);
    changed = true;
  });
  return changed;
}

bool lay_out_for_reshapes(Context& context) {
  std::optional<StrideReaders> readers;
  bool changed = false;
  for_each(context.graph, "ipex::elementwise.", [&](Node* node) {
    std::vector<Use> uses = node->output()->uses();
    std::erase_if(uses, reads_only_sizes);
    if (uses.empty() || !std::all_of(uses.begin(), uses.end(), reshapes)) return;
    if (!readers) readers.emplace(context.graph);
    if (readers->see(node->output())) return context.declined(node, "the strides of a result depend on it");
    context.applied(node, "gives its result in one piece, for a reshape");
    set_argument(node, "in_one_piece", true);
    changed = true;
  });
  return changed;
}

bool run(Context& context) { return lay_out_slices(context) | lay_out_for_reshapes(context); }

}  // namespace

Pass lay_out_elementwise() { return {"lay_out_elementwise", run}; }

}  // namespace ipex::passes
