// lay_out_elementwise: a chain of elementwise ops whose result is reshaped gives it in one piece.
//
//   before   %y = ipex::elementwise(%inputs, %steps)               %z = aten::reshape(%y, %sizes)
//   after    %y = ipex::contiguous_elementwise(%inputs, %steps)    %z = aten::reshape(%y, %sizes)
//
// Eager's layout follows from the first input whose strides tell dimensions apart, as one does that is a permutation: the reshape
// would copy. Runs after the passes that let a chain give or read 8-bit numbers, as they know it by one name.
// Leaves a chain that somebody else reads, or whose strides somebody sees.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "graph_walk.h"
#include "passes.h"
#include "stride_readers.h"

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

bool run(Context& context) {
  static const Symbol contiguous = Symbol::fromQualString("ipex::contiguous_elementwise");
  std::optional<StrideReaders> readers;
  bool changed = false;
  for_each(context.graph, "ipex::elementwise.", [&](Node* node) {
    std::vector<Use> uses = node->output()->uses();
    std::erase_if(uses, reads_only_sizes);
    if (uses.empty() || !std::all_of(uses.begin(), uses.end(), reshapes)) return;
    if (!readers) readers.emplace(context.graph);
    if (readers->see(node->output())) return context.declined(node, "the strides of a result depend on it");
    context.applied(node, "gives its result in one piece, for a reshape");
    const torch::jit::WithInsertPoint guard(node);
    replace(node, context.graph->insertNode(context.graph->create(contiguous, node->inputs())));
    changed = true;
  });
  return changed;
}

}  // namespace

Pass lay_out_elementwise() { return {"lay_out_elementwise", run}; }

}  // namespace ipex::passes
