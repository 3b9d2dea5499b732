// prepack_weight_only_linear: a linear whose weight came as codes (GPTQ, AWQ, GGUF) becomes an anchor.
//
//   before   %y = ipex::weight_only_linear(%x, %codes, %scales, %offsets, %order, %b, %inputs, %group_size, %row_bits, ..)
//   after    %context = ipex::weight_only_linear_prepack(%codes, %scales, %offsets, %order, %b, %post_ops=[], %inputs, ..)
//            %y = ipex::weight_only_linear_run(%x, %context, %operands=[], %eager_layout=1)
//
// or, of codes that the model holds packed,
//
//   before   %y = ipex::weight_only_linear_run(%x, %packed, %operands=[], %eager_layout=1)
//   after    %context = ipex::weight_only_linear_prepack.again(%packed, %post_ops=[])
//            %y = ipex::weight_only_linear_run(%x, %context, %operands=[], %eager_layout=1)
//
// whose memory both contexts share. Declines when one of its arguments but the first is no constant.
#include <torch/csrc/jit/ir/constants.h>

#include "ir/context_constants.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::IValue;

bool take_packed(Context& context) {
  bool changed = false;
  for_each(context.graph, "ipex::weight_only_linear_run", [&](Node* node) {
    // What a model that was optimised before holds are attributes, and stay as they are.
    if (!is_constant_context(node->input(1)->node())) return;
    context.applied(node, "prepacked");
    Graph* graph = node->owningGraph();
    const torch::jit::WithInsertPoint guard(node);
    Value* no_post_ops = graph->insertConstant(c10::List<std::string>());
    node->replaceInput(
        1, graph->insert(Symbol::fromQualString("ipex::weight_only_linear_prepack"), {node->input(1), no_post_ops}));
    changed = true;
  });
  return changed;
}

bool run(Context& context) {
  bool changed = take_packed(context);
  for_each(context.graph, "ipex::weight_only_linear", [&](Node* node) {
    const auto inputs = node->inputs();
    for (const Value* value : inputs.slice(1)) {
      if (!torch::jit::toIValue(value)) return context.declined(node, "its weight is not a constant");
    }
    context.applied(node, "prepacked");
    Graph* graph = node->owningGraph();
    const torch::jit::WithInsertPoint guard(node);
    std::vector<torch::jit::NamedValue> arguments(inputs.begin() + 1, inputs.begin() + 6);
    arguments.emplace_back(graph->insertConstant(c10::List<std::string>()));
    arguments.insert(arguments.end(), inputs.begin() + 6, inputs.end());
    Value* packed = graph->insert(Symbol::fromQualString("ipex::weight_only_linear_prepack"), arguments);
    Value* operands = graph->insertNode(graph->createList(c10::TensorType::get(), {}))->output();
    Value* eager_layout = graph->insertConstant(true);
    replace(node, graph->insertNode(graph->create(Symbol::fromQualString("ipex::weight_only_linear_run"),
                                                  {inputs[0], packed, operands, eager_layout})));
    changed = true;
  });
  return changed;
}

}  // namespace

Pass prepack_weight_only_linear() { return {"prepack_weight_only_linear", run}; }

}  // namespace ipex::passes
