// prepack_weight_only_linear: split a linear whose weight came as codes (GPTQ, AWQ) into packing, done once, and running.
//
//   before   %y = ipex::weight_only_linear(%x, %codes, %scales, %offsets, %order, %b, %inputs, %group_size, %row_bits, ..)
//   after    %context = ipex::weight_only_linear_prepack(%codes, %scales, %offsets, %order, %b, %post_ops=[], %inputs, ..)
//            %y = ipex::weight_only_linear_run(%x, %context, %operands=[], %eager_layout=1)
//
// Declines when one of its arguments but the first is no constant.
#include <torch/csrc/jit/ir/constants.h>

#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::IValue;

bool run(Context& context) {
  bool changed = false;
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
