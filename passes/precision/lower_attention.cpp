// lower_attention: where a float32 model computes in bfloat16, attention between layers reads and gives what they give and read.
//
//   before   %f = ipex::restore_precision(%l)     %q = aten::transpose(%f, ..)     and so for the key and the value
//            %y = ipex::attention(%q, %k, %v, %steps, ..)
//   after    %s = ipex::attention(%q, %k and %v in 16 bits, ["of_16_bits", ..steps], ..)
//            %y = ipex::restore_precision(%s)
//
// and aten::scaled_dot_product_attention, which needs no step. The casts on both sides then fold. All that the
// casts round are the products' factors, which attention rounds anyhow, and the result, as the next layer does.
// Declines where one of the three is not only moved on its way from a layer: two casts would take the place of two. float16
// has other limits than float32, and attention does not round to it.
#include <algorithm>

#include "ir/aliasing.h"
#include "ir/casts.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

const Symbol restore = Symbol::fromQualString("ipex::restore_precision");

bool is_from_a_layer(const Value* value) {
  while (value->node()->kind() != restore) {
    if (!only_moves(value->node())) return false;
    value = value->node()->input(0);
  }
  return true;
}

void lower(Node* node, at::ScalarType dtype) {
  Graph* graph = node->owningGraph();
  const torch::jit::WithInsertPoint guard(node);
  for (size_t i = 0; i < 3; ++i) {
    node->replaceInput(i, graph->insert(Symbol::fromQualString("ipex::lower_precision"), {node->input(i), dtype}));
  }
  if (node->kind() == Symbol::fromQualString("ipex::attention")) {
    c10::List<std::string> steps({"of_16_bits"});
    steps.append(torch::jit::toIValue(node->input(3))->to<c10::List<std::string>>());
    node->replaceInput(3, graph->insertConstant(steps));
  }
  const torch::jit::WithInsertPoint behind(node->next());
  Value* result = graph->insert(restore, {node->output()});
  result->copyMetadata(node->output());
  result->node()->setSourceRange(node->sourceRange());
  node->output()->setType(c10::TensorType::get());
  node->output()->replaceAllUsesAfterNodeWith(result->node(), result);
}

bool run(Context& context) {
  if (context.options.dtype != at::kBFloat16) return false;
  bool writes = false, changed = false;
  for_each_node(context.graph->block(), [&](Node* node) { writes |= node->blocks().empty() && may_write(node); });
  for (const char* op : {"ipex::attention", "aten::scaled_dot_product_attention"}) {
    for_each(context.graph, op, [&](Node* node) {
      if (writes) return context.declined(node, "something is overwritten");
      if (!std::all_of(node->inputs().begin(), node->inputs().begin() + 3, is_from_a_layer)) {
        return context.declined(node, "not all that it reads comes from layers of 16 bits");
      }
      lower(node, *context.options.dtype);
      context.applied(node, "reads and gives bfloat16");
      changed = true;
    });
  }
  return changed;
}

}  // namespace

Pass lower_attention() { return {"lower_attention", run, needs(aten_names) + breaks(full_precision)}; }

}  // namespace ipex::passes
