#include "lifted_tensors.h"

#include <torch/csrc/jit/ir/constants.h>

#include "ir/graph_walk.h"

namespace ipex::passes {

Value* LiftedTensors::lift(const at::Tensor& tensor, Graph& graph) {
  Value*& input = inputs_[tensor.unsafeGetTensorImpl()];
  if (!input) {
    input = graph.addInput()->setType(c10::TensorType::get());
    tensors_.push_back(tensor);
  }
  return input;
}

void LiftedTensors::lift_constants(Graph& graph) {
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() != c10::prim::Constant) return;
    const c10::IValue constant = torch::jit::toIValue(node->output()).value_or(c10::IValue());  // none of a function
    if (!constant.isTensor() || constant.toTensor().dim() == 0) return;
    node->output()->replaceAllUsesWith(lift(constant.toTensor(), graph));
    node->destroy();
  });
}

void LiftedTensors::put_back(Graph& graph) const {
  const torch::jit::WithInsertPoint guard(*graph.block()->nodes().begin());
  for (size_t i = tensors_.size(); i-- > 0;) {
    Value* input = graph.inputs().at(first_ + i);
    const at::Tensor& tensor = tensors_[i];
    if (input->hasUses()) {
      input->replaceAllUsesWith(graph.insertConstant(tensor.requires_grad() ? tensor.detach() : tensor));
    }
    graph.eraseInput(first_ + i);
  }
}

}  // namespace ipex::passes
