// simplify_transposes: transposes that follow one another are one, or none.
//
//   before   %a = aten::transpose(%x, 1, 2)    %b = aten::transpose(%a, 2, 1)
//   after    %b is %x
//   before   %a = aten::permute(%x, [0, 2, 3, 1])    %b = aten::permute(%a, [0, 2, 3, 1])
//   after    %b = aten::permute(%x, [0, 3, 1, 2])
//
// All of these are views of the same memory, so who writes to it does not matter. Where %b may leave the graph it stays a
// tensor of its own, aten::alias(%x).
// Declines when dimensions are no constants, and in graphs that change shapes in place: %x, %a and %b may change apart.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <numeric>

#include "ir/aliasing.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

std::optional<std::vector<int64_t>> dimensions(const Node* node) {
  std::vector<int64_t> dims;
  for (const Value* input : node->inputs().slice(1)) {
    const auto value = toIValue(input);
    if (!value) return std::nullopt;
    if (value->isInt()) {
      dims.push_back(value->toInt());
    } else {
      dims = value->toIntVector();
      for (int64_t& d : dims) d += d < 0 ? static_cast<int64_t>(dims.size()) : 0;
    }
  }
  return dims;
}

bool run(Context& context) {
  const bool reshapes = reshapes_in_place(context.graph);
  bool changed = false;
  const auto simplify = [&](Node* outer) {
    Node* inner = outer->input(0)->node();
    if (inner->kind() != outer->kind() || inner->inputs().size() != outer->inputs().size()) return;
    const auto first = dimensions(inner), second = dimensions(outer);
    if (!first || !second) return context.declined(outer, "its dimensions are not constants");
    if (reshapes) return context.declined(outer, "the graph changes shapes in place");
    Value* x = inner->input(0);
    if (outer->kind() == c10::aten::permute) {
      if (first->size() != second->size()) return;
      std::vector<int64_t> both, identity(first->size());
      for (const int64_t d : *second) both.push_back(first->at(static_cast<size_t>(d)));
      std::iota(identity.begin(), identity.end(), 0);
      if (both != identity) {
        context.merged(outer, "merged with ", inner);
        const torch::jit::WithInsertPoint guard(outer);
        replace(outer, context.graph->insert(c10::aten::permute, {x, both})->node());
        changed = true;
        return;
      }
    } else if (!std::is_permutation(first->begin(), first->end(), second->begin(), second->end())) {
      return;
    }
    context.merged(outer, "undoes ", inner);
    if (must_be_a_tensor_of_its_own(outer->output())) {
      const torch::jit::WithInsertPoint guard(outer);
      replace(outer, context.graph->insert(c10::aten::alias, {x})->node());
      changed = true;
      return;
    }
    outer->output()->replaceAllUsesWith(x);
    outer->destroy();
    changed = true;
  };
  for (const char* kind : {"aten::transpose", "aten::permute", "aten::t"}) for_each(context.graph, kind, simplify);
  return changed;
}

}  // namespace

Pass simplify_transposes() { return {"simplify_transposes", run, needs(one_name_per_op, plain_views)}; }

}  // namespace ipex::passes
