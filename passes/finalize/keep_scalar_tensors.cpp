#include "finalize/keep_scalar_tensors.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "graph_walk.h"

namespace ipex::passes {
namespace {

bool becomes_a_number(const Use& use) {
  static const OpName names[] = {OpName("aten::add"), OpName("aten::sub"), OpName("aten::mul"), OpName("aten::div")};
  return use.offset == 1 &&
         std::any_of(std::begin(names), std::end(names), [&](const OpName& name) { return name.is_of(use.user); });
}

bool is_scalar_tensor(const Value* constant) {
  const auto value = torch::jit::toIValue(constant);
  return value && value->isTensor() && value->toTensor().defined() && value->toTensor().dim() == 0;
}

}  // namespace

void keep_scalar_tensors(const std::shared_ptr<Graph>& graph, torch::jit::Module& module) {
  std::vector<Node*> constants;
  for_each_node(graph->block(), [&](Node* node) {
    if (node->kind() != c10::prim::Constant || !is_scalar_tensor(node->output())) return;
    const auto& uses = node->output()->uses();
    if (std::any_of(uses.begin(), uses.end(), becomes_a_number)) constants.push_back(node);
  });
  size_t next = 0;
  for (Node* node : constants) {
    const at::Tensor scalar = torch::jit::toIValue(node->output())->toTensor();
    const std::string prefix = "scalar_";
    while (module.hasattr(prefix + std::to_string(next))) ++next;
    const std::string name = prefix + std::to_string(next);
    module.register_attribute(name, c10::TensorType::get(), scalar);
    const torch::jit::WithInsertPoint guard(node);
    node->output()->replaceAllUsesWith(graph->insertGetAttr(graph->inputs().at(0), name));
    node->destroy();
  }
}

}  // namespace ipex::passes
