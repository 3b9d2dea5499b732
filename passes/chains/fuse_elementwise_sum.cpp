// fuse_elementwise_sum: elementwise ops whose result is summed, and read by nobody else, sum it in the same pass over memory.
//
//   before   %p = ipex::elementwise([%a, %b], ["mul 0 1"])
//            %y = aten::sum(%p, [-1], %keepdim, %dtype=None)
//   after    %y = ipex::elementwise_sum([%a, %b], ["mul 0 1"], [-1], %keepdim)
//
// and ipex::elementwise_mean for aten::mean. The products of a broadcast, as of delta rules, attention over branches and
// weighted pooling, are many times larger than what they are made of and than their sums.
//
// Declines sums of what others read too, of another dtype or over dimensions that are not known, and of 8-bit numbers, which
// are read by another op.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "chains/elementwise_casts.h"
#include "chains/elementwise_sums.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool reads_bytes(const Node* elementwise) {
  static const OpName dequantize("ipex::dequantize");
  const auto values = elementwise->input(0)->node()->inputs();
  return std::any_of(values.begin(), values.end(), [](const Value* v) { return dequantize.is_of(v->node()); });
}

// A step that changes nothing, for what a layer of 16 bits gave: the sum reads that.
Node* terms_of_restored(Node* sum) {
  const torch::jit::WithInsertPoint guard(sum);
  Graph* graph = sum->owningGraph();
  Value* list = graph->insertNode(graph->createList(c10::TensorType::get(), {sum->namedInput("self")}))->output();
  Value* steps = graph->insertConstant(c10::List<std::string>({"mul_number(1.0) 0"}));
  Node* terms = graph->insertNode(graph->create(Symbol::fromQualString("ipex::elementwise"), {list, steps}));
  sum->replaceInput(0, terms->output());
  return terms;
}

bool fuse(Context& context, Node* sum, const char* op) {
  static const OpName elementwise("ipex::elementwise.");
  Node* terms = sum->namedInput("self")->node();
  if (restoring_cast(terms->output(0)) && !reason_to_sum_elsewhere(sum)) terms = terms_of_restored(sum);
  if (!elementwise.is_of(terms)) return false;
  const char* reason = reads_bytes(terms) ? "it sums 8-bit numbers" : reason_to_store_terms(sum);
  if (reason) {
    context.declined(sum, reason);
    return false;
  }
  context.applied(sum, "summed in the pass over memory that makes its terms");
  const torch::jit::WithInsertPoint guard(terms);
  Graph* graph = terms->owningGraph();
  const auto here = [&](const char* input) {
    return graph->insertConstant(*torch::jit::toIValue(sum->namedInput(input)));
  };
  Node* fused = graph->insertNode(
      graph->create(Symbol::fromQualString(op), {terms->input(0), terms->input(1), here("dim"), here("keepdim")}));
  fused->setSourceRange(sum->sourceRange());
  fused->setScope(sum->scope());
  fused->output()->copyMetadata(sum->output());
  sum->output()->replaceAllUsesWith(fused->output());
  sum->destroy();
  terms->destroy();
  return true;
}

bool run(Context& context) {
  bool changed = false;
  for_each(context.graph, "aten::sum.dim_IntList",
           [&](Node* sum) { changed |= fuse(context, sum, "ipex::elementwise_sum"); });
  for_each(context.graph, "aten::mean.dim",
           [&](Node* mean) { changed |= fuse(context, mean, "ipex::elementwise_mean"); });
  return changed;
}

}  // namespace

Pass fuse_elementwise_sum() { return {"fuse_elementwise_sum", run}; }

}  // namespace ipex::passes
