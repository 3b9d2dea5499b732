#include "finalize/keep_scalar_tensors.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "finalize/numbered_attributes.h"
#include "graph_walk.h"

namespace ipex::passes {
namespace {

bool becomes_a_number(const Use& use) {
  static const OpName names[] = {OpName("aten::add"), OpName("aten::sub"), OpName("aten::mul"), OpName("aten::div")};
  return use.offset == 1 &&
         std::any_of(std::begin(names), std::end(names), [&](const OpName& name) { return name.is_of(use.user); });
}

}  // namespace

ScalarTensors::ScalarTensors(const torch::jit::Module& module) {
  for (const c10::IValue& attribute : module.attributes(/*recurse=*/true)) {
    if (!attribute.isTensor()) continue;
    const at::Tensor& tensor = attribute.toTensor();
    const bool has_memory = tensor.defined() && tensor.has_storage();
    if (has_memory && tensor.dim() == 0) storages_.insert(tensor.storage().unsafeGetStorageImpl());
  }
}

bool ScalarTensors::contain(const Value* constant) const {
  const auto value = torch::jit::toIValue(constant);
  if (!value || !value->isTensor() || !value->toTensor().defined() || !value->toTensor().has_storage()) return false;
  const at::Tensor& tensor = value->toTensor();
  return tensor.dim() == 0 && storages_.count(tensor.storage().unsafeGetStorageImpl()) > 0;
}

void ScalarTensors::keep_doubles(const std::shared_ptr<Graph>& graph, torch::jit::Module& module) const {
  const auto is_double = [](const Value* constant) {
    return torch::jit::toIValue(constant)->toTensor().scalar_type() == at::kDouble;
  };
  keep_where(is_double, *graph, module);
}

void ScalarTensors::keep(const std::shared_ptr<Graph>& graph, torch::jit::Module& module) const {
  keep_where([](const Value*) { return true; }, *graph, module);
}

template <typename Holds>
void ScalarTensors::keep_where(const Holds& holds, Graph& graph, torch::jit::Module& module) const {
  std::vector<Node*> constants;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() != c10::prim::Constant || !contain(node->output()) || !holds(node->output())) return;
    const auto& uses = node->output()->uses();
    if (std::any_of(uses.begin(), uses.end(), becomes_a_number)) constants.push_back(node);
  });
  NumberedAttributes scalars(module, "scalar_");
  for (Node* node : constants) {
    const torch::jit::WithInsertPoint guard(node);
    Value* scalar = scalars.insert(graph, c10::TensorType::get(), *torch::jit::toIValue(node->output()));
    node->output()->replaceAllUsesWith(scalar);
    node->destroy();
  }
}

}  // namespace ipex::passes
