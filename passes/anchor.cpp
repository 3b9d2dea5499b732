#include "anchor.h"

#include <torch/csrc/jit/ir/constants.h>

namespace ipex::passes {
namespace {

using torch::jit::IValue;
using torch::jit::toIValue;
using torch::jit::WithInsertPoint;

std::string op_name(const Node* node) { return node->kind().toQualString(); }

}  // namespace

std::optional<Anchor> Anchor::producing(const Value* value) {
  Node* run = const_cast<Node*>(value->node());
  const std::string name = op_name(run);
  if (!name.starts_with("ipex::") || !name.ends_with("_run")) return std::nullopt;
  Node* prepack = run->input(1)->node();
  // A model that was optimised before holds its contexts as attributes: nothing can be added to them.
  if (!op_name(prepack).ends_with("_prepack")) return std::nullopt;
  return Anchor(prepack, run);
}

Anchor Anchor::insert_before(Node* node, const std::string& op, at::ArrayRef<Value*> inputs, Value* x) {
  Graph* graph = node->owningGraph();
  const WithInsertPoint guard(node);
  std::vector<torch::jit::NamedValue> arguments(inputs.begin(), inputs.end());
  arguments.emplace_back(graph->insertConstant(c10::List<std::string>()));
  for (int folded = 0; folded < 2; ++folded) arguments.emplace_back(graph->insertConstant(IValue()));
  Value* context = graph->insert(Symbol::fromQualString("ipex::" + op + "_prepack"), arguments);
  Value* operands = graph->insertNode(graph->createList(c10::TensorType::get(), {}))->output();
  Value* eager_layout = graph->insertConstant(true);
  Value* y = graph->insert(Symbol::fromQualString("ipex::" + op + "_run"), {x, context, operands, eager_layout});
  return Anchor(context->node(), y->node());
}

void Anchor::set_argument(const char* name, const IValue& value) const {
  const WithInsertPoint guard(prepack_);
  const auto index = prepack_->schema().argumentIndexWithName(name);
  TORCH_INTERNAL_ASSERT(index, name);
  prepack_->replaceInput(static_cast<size_t>(*index), prepack_->owningGraph()->insertConstant(value));
}

std::vector<std::string> Anchor::post_ops() const {
  std::vector<std::string> names;
  for (const IValue& name : toIValue(argument("post_ops"))->toListRef()) names.push_back(name.toStringRef());
  return names;
}

void Anchor::append_post_op(const std::string& name, Value* operand) const {
  c10::List<std::string> names;
  for (const std::string& known : post_ops()) names.push_back(known);
  names.push_back(name);
  set_argument("post_ops", names);
  if (operand) {
    const WithInsertPoint guard(run_);
    std::vector<Value*> all = operands().vec();
    all.push_back(operand);
    Graph* graph = run_->owningGraph();
    run_->replaceInput(2, graph->insertNode(graph->createList(c10::TensorType::get(), all))->output());
  }
}

std::optional<std::string> reason_against_packing(const Node* node, int64_t weight_rank) {
  const auto weight_value = toIValue(node->namedInput("weight"));
  if (!weight_value || !weight_value->isTensor()) return "its weight is not a constant";
  const at::Tensor weight = weight_value->toTensor();
  if (weight.dim() != weight_rank) return c10::str("its weight has ", weight.dim(), " dimensions, not ", weight_rank);
  if (weight.scalar_type() != at::kFloat) return c10::str("its weight is ", weight.scalar_type(), ", not float32");
  if (!weight.device().is_cpu() || weight.layout() != at::kStrided) return "its weight is not a dense CPU tensor";
  if (weight.numel() == 0) return "its weight is empty";
  const auto bias = toIValue(node->namedInput("bias"));
  if (!bias) return "its bias is not a constant";
  if (bias->isTensor() && (bias->toTensor().scalar_type() != at::kFloat || bias->toTensor().dim() != 1 ||
                           bias->toTensor().size(0) != weight.size(0) || !bias->toTensor().device().is_cpu())) {
    return "its bias is not a float32 vector";
  }
  return std::nullopt;
}

}  // namespace ipex::passes
