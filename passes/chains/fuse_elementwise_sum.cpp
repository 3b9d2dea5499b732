// fuse_elementwise_sum: elementwise ops whose result is summed, and read by nobody else, sum it in the same pass over memory.
//
//   before   %p = ipex::elementwise([%a, %b], ["mul 0 1"])
//            %y = aten::sum(%p, [-1], %keepdim, %dtype=None)
//   after    %y = ipex::elementwise.sum([%a, %b], ["mul 0 1"], [-1], %keepdim, %is_mean=False)
//
// and so for aten::mean. The products of a broadcast, as of delta rules, attention over branches and
// weighted pooling, are many times larger than what they are made of and than their sums.
//
// Declines sums of what others read too, of another dtype or over dimensions that are not known.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "chains/elementwise_casts.h"
#include "chains/elementwise_sums.h"
#include "ir/calls.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// A step that changes nothing, for what a layer of 16 bits gave: the sum reads that.
Node* terms_of_restored(Node* sum) {
  const torch::jit::WithInsertPoint guard(sum);
  Graph* graph = sum->owningGraph();
  Value* list = graph->insertNode(graph->createList(c10::TensorType::get(), {sum->namedInput("self")}))->output();
  Value* steps = graph->insertConstant(c10::List<std::string>({"mul_number(1.0) 0"}));
  Node* terms = insert_call(*graph, {"ipex::elementwise", ""}, {list, steps});
  sum->replaceInput(0, terms->output());
  return terms;
}

bool fuse(Context& context, Node* sum, bool is_mean) {
  static const OpName elementwise("ipex::elementwise.");
  Node* terms = sum->namedInput("self")->node();
  if (restoring_cast(terms->output(0)) && !reason_to_sum_elsewhere(sum)) terms = terms_of_restored(sum);
  if (!elementwise.is_of(terms)) return false;
  if (const char* reason = reason_to_store_terms(sum)) {
    context.declined(sum, reason);
    return false;
  }
  context.applied(sum, "summed in the pass over memory that makes its terms");
  const torch::jit::WithInsertPoint guard(terms);
  Graph* graph = terms->owningGraph();
  const auto here = [&](const char* input) {
    return graph->insertConstant(*torch::jit::toIValue(sum->namedInput(input)));
  };
  replace(sum, insert_call(
                   *graph, {"ipex::elementwise", "sum"},
                   {terms->input(0), terms->input(1), here("dim"), here("keepdim"), graph->insertConstant(is_mean)}));
  terms->destroy();
  return true;
}

bool run(Context& context) {
  bool changed = false;
  for_each(context.graph, "aten::sum.dim_IntList",
           [&](Node* sum) { changed |= fuse(context, sum, /*is_mean=*/false); });
  for_each(context.graph, "aten::mean.dim", [&](Node* mean) { changed |= fuse(context, mean, /*is_mean=*/true); });
  return changed;
}

}  // namespace

Pass fuse_elementwise_sum() { return {"fuse_elementwise_sum", run, breaks(plain_arithmetic)}; }

}  // namespace ipex::passes
