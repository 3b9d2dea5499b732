// fuse_cached_attention: a step of a language model joins the keys and values of a text with those of a new word where
// attention reads them.
//
//   before   %keys = ipex::cat([%past_key, %key], %dim)
//            %values = ipex::cat([%past_value, %value], %dim)
//            %y = ipex::scaled_dot_product_attention(%q, %keys, %values, ..)
//   after    %y, %keys, %values = ipex::cached_attention(%q, %past_key, %key, %past_value, %value, %dim, .., %math_mode)
//
// Keys and values are results too, as they are kept for the next step.
// Declines when somebody reads what was joined before attention does, or when anything is overwritten in between.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// Two tensors that are joined for this attention.
struct Join {
  Node* cat;
  Value *past, *added, *dim;
};

std::optional<Join> join_of(Value* joined) {
  static const OpName cat("ipex::cat");
  Node* node = joined->node();
  if (!cat.is_of(node)) return std::nullopt;
  const auto parts = own_elements_of(node->input(0));
  if (!parts || parts->size() != 2 || !number(node->input(1))) return std::nullopt;
  return Join{node, parts->at(0), parts->at(1), node->input(1)};
}

// Why what is joined can't be written as late as attention reads it, as its argument `place`. Null when it can.
const char* reason_against(const Join& join, const Node* attention, size_t place) {
  if (join.cat->owningBlock() != attention->owningBlock()) return "what it reads is joined in another block";
  const auto& readers = join.cat->output()->uses();
  const auto is_early = [&](const Use& use) {
    return (use.user != attention || use.offset != place) && !attention->isBefore(use.user);
  };
  if (std::any_of(readers.begin(), readers.end(), is_early)) return "what it reads has a reader before";
  if (written_between(join.cat, attention)) return "something is overwritten before it";
  return nullptr;
}

bool run(Context& context) {
  bool changed = false;
  for_each(context.graph, "ipex::scaled_dot_product_attention", [&](Node* attention) {
    const auto keys = join_of(attention->input(1)), values = join_of(attention->input(2));
    if (!keys || !values || keys->cat == values->cat || number(keys->dim) != number(values->dim)) return;
    const char* reason = reason_against(*keys, attention, 1);
    if (!reason) reason = reason_against(*values, attention, 2);
    if (reason) return context.declined(attention, reason);
    Graph& graph = *context.graph;
    const torch::jit::WithInsertPoint guard(attention);
    std::vector<Value*> inputs{attention->input(0), keys->past, keys->added, values->past, values->added, keys->dim};
    const auto given = attention->inputs();
    inputs.insert(inputs.end(), given.begin() + 3, given.end());
    Node* fused = graph.insertNode(graph.create(Symbol::fromQualString("ipex::cached_attention"), inputs, 3));
    fused->setSourceRange(attention->sourceRange());
    fused->setScope(attention->scope());
    context.applied(attention, "joins keys and values itself");
    Value* const replaced[] = {attention->output(), keys->cat->output(), values->cat->output()};
    for (size_t i = 0; i < 3; ++i) {
      fused->output(i)->copyMetadata(replaced[i]);
      replaced[i]->replaceAllUsesAfterNodeWith(fused, fused->output(i));
    }
    for (Node* node : {attention, keys->cat, values->cat}) node->destroy();
    changed = true;
  });
  return changed;
}

}  // namespace

Pass fuse_cached_attention() {
  return {"fuse_cached_attention", run, needs(lists_are_values, ops_lowered) + breaks(plain_attention)};
}

}  // namespace ipex::passes
