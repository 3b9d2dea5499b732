#include <ipex/intermediates.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include "pipeline/pass.h"

namespace ipex {
namespace {

using passes::Graph;
using passes::Node;
using passes::Value;

std::vector<Value*> tensors_of(const Graph& graph) {
  std::vector<Value*> tensors;
  for (const Node* node : graph.nodes()) {
    if (node->kind() == c10::prim::Constant || node->kind() == c10::prim::GetAttr) continue;
    for (const Value* output : node->outputs()) {
      if (output->type()->kind() == c10::TypeKind::TensorType) tensors.push_back(const_cast<Value*>(output));
    }
  }
  return tensors;
}

}  // namespace

std::vector<std::pair<std::string, c10::IValue>> intermediates(const torch::jit::Module& module,
                                                               std::vector<c10::IValue> inputs, Recorded what) {
  const std::shared_ptr<Graph> named = module.get_method("forward").graph();
  const std::shared_ptr<Graph> graph = named->copy();
  TORCH_CHECK(inputs.size() + 1 == graph->inputs().size(), "ipex.intermediates: expected ", graph->inputs().size() - 1,
              " inputs, got ", inputs.size(), ". Pass those that forward takes.");
  const size_t own_outputs = graph->outputs().size();
  // A copy numbers anew what has a number for a name.
  std::vector<std::string> names;
  for (const Value* tensor : tensors_of(*named)) names.push_back(tensor->debugName());
  for (Value* tensor : tensors_of(*graph)) {
    const torch::jit::WithInsertPoint guard(tensor->node()->next());
    graph->registerOutput(what == Recorded::sizes ? graph->insert(c10::aten::size, {tensor})
                                                  : graph->insert(c10::aten::clone, {tensor}));
  }
  torch::jit::Stack stack{module._ivalue()};
  stack.insert(stack.end(), std::make_move_iterator(inputs.begin()), std::make_move_iterator(inputs.end()));
  // Not the executor: it would profile the graph, and may change the order.
  torch::jit::Code code(graph, "intermediates");
  torch::jit::InterpreterState(code).run(stack);

  std::vector<std::pair<std::string, c10::IValue>> recorded;
  for (size_t i = 0; i < names.size(); ++i) recorded.emplace_back(names[i], stack.at(own_outputs + i));
  return recorded;
}

}  // namespace ipex
