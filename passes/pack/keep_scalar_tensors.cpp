#include "pack/keep_scalar_tensors.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/floating.h"
#include "ir/graph_walk.h"
#include "ir/storages.h"
#include "ops/op_table.h"
#include "pack/numbered_attributes.h"

namespace ipex::passes {
namespace {

// To TorchScript's executor.
bool becomes_a_number(const Use& use) {
  static const OpName names[] = {OpName("aten::add"), OpName("aten::sub"), OpName("aten::mul"), OpName("aten::div")};
  return use.offset == 1 && is_of_any(names, use.user);
}

// Whether a tensor has dimensions whatever the model is given: as layers' results do, and what is computed of these
// element by element.
bool has_dimensions(const Value* value) {
  constexpr size_t most_steps_back = 64;
  std::vector<const Value*> reached{value};
  for (size_t i = 0; i < reached.size() && reached.size() < most_steps_back; ++i) {
    const Node* node = reached[i]->node();
    const Op* op = op_of(node);
    if (!op) continue;
    const bool is_product = op->weight >= 0 && !op->has(trait::multiplies);  // matmul multiplies two vectors, too
    if (is_product || op->has(trait::convolves) || op->has(trait::joins)) return true;
    if (op->memory != Memory::itself && !op->has(trait::elementwise) && !op->has(trait::promotes)) continue;
    for (const Value* input : node->inputs()) {
      if (has_tensor_type(input)) reached.push_back(input);
    }
  }
  return false;
}

// Whether a constant may decide the dtype of the result that reads it: a tensor without dimensions does, unless another one with
// dimensions is of its category or a higher one. A trace has the numbers of arithmetic as tensors, but those that come first,
// which are tensors in eager too.
bool decides_dtype(const Use& use, bool is_tensor) {
  static const OpName arithmetic[] = {OpName("aten::add"), OpName("aten::sub"), OpName("aten::mul"),
                                      OpName("aten::div"), OpName("aten::rsub")};
  static const OpName others[] = {OpName("aten::clamp.Tensor"), OpName("aten::clamp_min.Tensor"),
                                  OpName("aten::clamp_max.Tensor"), OpName("aten::pow.Tensor_Tensor")};
  const bool is_operand = is_of_any(arithmetic, use.user) && (is_tensor || use.offset == 0);
  if (!is_of_any(others, use.user) && !is_operand) return false;
  const auto inputs = use.user->inputs();
  return std::none_of(inputs.begin(), inputs.end(),
                      [](const Value* input) { return has_dimensions(input) && is_floating(input); });
}

}  // namespace

ScalarTensors::ScalarTensors(const torch::jit::Module& module) {
  // torch.tensor(2.) in a trace is a constant that is moved to its device. Arithmetic reads numbers themselves.
  static const OpName moves[] = {OpName("aten::to"), OpName("aten::detach")};
  const auto take = [&](const at::Tensor& tensor) {
    const bool has_memory = tensor.defined() && tensor.has_storage();
    if (has_memory && tensor.dim() == 0) storages_.insert(tensor.storage().unsafeGetStorageImpl());
  };
  for (const auto& submodule : module.modules()) {
    for (const auto& method : submodule.get_methods()) {
      for_each_node(method.graph()->block(), [&](Node* node) {
        if (!is_of_any(moves, node)) return;
        if (const auto constant = torch::jit::toIValue(node->input(0))) for_each_tensor(*constant, take);
      });
    }
  }
  for (const c10::IValue& attribute : module.attributes(/*recurse=*/true)) {
    if (attribute.isTensor()) take(attribute.toTensor());
  }
}

// Numbers of a trace are doubles and integers of 64 bits.
bool ScalarTensors::contain(const at::Tensor& tensor) const {
  const at::ScalarType dtype = tensor.scalar_type();
  return (dtype != at::kDouble && dtype != at::kLong) || storages_.count(tensor.storage().unsafeGetStorageImpl()) > 0;
}

void ScalarTensors::keep_deciding(const std::shared_ptr<Graph>& graph, torch::jit::Module& module) const {
  keep_where(decides_dtype, *graph, module);
}

void ScalarTensors::keep(const std::shared_ptr<Graph>& graph, torch::jit::Module& module) const {
  const auto is_made_a_number = [](const Use& use, bool is_tensor) { return is_tensor && becomes_a_number(use); };
  keep_where(is_made_a_number, *graph, module);
}

template <typename Decides>
void ScalarTensors::keep_where(const Decides& decides, Graph& graph, torch::jit::Module& module) const {
  std::vector<Node*> constants;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() != c10::prim::Constant) return;
    const auto value = torch::jit::toIValue(node->output());
    if (!value || !value->isTensor() || !value->toTensor().defined() || !value->toTensor().has_storage()) return;
    if (value->toTensor().dim() > 0) return;
    const bool is_tensor = contain(value->toTensor());
    const auto& uses = node->output()->uses();
    const auto is_deciding = [&](const Use& use) { return decides(use, is_tensor); };
    if (std::any_of(uses.begin(), uses.end(), is_deciding)) constants.push_back(node);
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
