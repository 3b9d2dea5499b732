#include "anchor/anchor.h"

#include <torch/csrc/jit/ir/constants.h>

#include "ir/constants.h"
#include "ops/op_table.h"

namespace ipex::passes {
namespace {

using torch::jit::IValue;
using torch::jit::toIValue;
using torch::jit::WithInsertPoint;

}  // namespace

std::optional<Anchor> Anchor::producing(const Value* value) {
  Node* run = const_cast<Node*>(value->node());
  const Op* op = op_of(run);
  if (!op || !op->packed || !op->packed->takes_post_ops()) return std::nullopt;
  Node* prepack = run->input(static_cast<size_t>(op->packed->context))->node();
  // A model that was optimised before holds its contexts as attributes: nothing can be added to them.
  if (!is_prepack(prepack) || uses_ports(run)) return std::nullopt;
  return Anchor(prepack, run);
}

std::optional<Anchor> Anchor::taking_post_ops(const Value* value) {
  Node* node = const_cast<Node*>(value->node());
  return has_trait(node, trait::takes_post_ops) ? Anchor(node, node) : producing(value);
}

Anchor Anchor::insert_before(Node* node, const std::string& op, at::ArrayRef<Value*> inputs, Value* x) {
  Graph* graph = node->owningGraph();
  const WithInsertPoint guard(node);
  std::vector<torch::jit::NamedValue> arguments(inputs.begin(), inputs.end());
  arguments.emplace_back(shared_constant(*graph, c10::List<std::string>()));
  if (!inputs.empty()) {  // it has a weight, into which a batch_norm may be folded
    for (int folded = 0; folded < 2; ++folded) arguments.emplace_back(shared_constant(*graph, IValue()));
  }
  arguments.emplace_back(shared_constant(*graph, IValue()));  // the process's math mode
  if (!inputs.empty()) {                                      // nothing vanishes, nothing widens
    arguments.emplace_back(shared_constant(*graph, IValue()));
    arguments.emplace_back(shared_constant(*graph, false));
  }
  Value* context = graph->insert(Symbol::fromQualString("ipex::" + op + "_prepack"), arguments);
  Value* operands = graph->insertNode(graph->createList(c10::TensorType::get(), {}))->output();
  Value* eager_layout = shared_constant(*graph, true);
  const Symbol kind = Symbol::fromQualString("ipex::" + op + "_run");
  // A matmul has no inputs: its second factor is still to come, so nothing is checked against the schema.
  Node* run = inputs.empty() ? graph->insertNode(graph->create(kind, {x, context, operands, eager_layout}))
                             : graph->insert(kind, {x, context, operands, eager_layout})->node();
  return Anchor(context->node(), run);
}

bool uses_ports(const Node* run) {
  const auto& arguments = run->schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& default_value = arguments[i].default_value();
    if (default_value && toIValue(run->input(i)) != default_value) return true;
  }
  return false;
}

void set_argument(Node* prepack, const char* name, const IValue& value) {
  const WithInsertPoint guard(prepack);
  set_argument(prepack, name, prepack->owningGraph()->insertConstant(value));
}

void set_argument(Node* node, const char* name, Value* value) {
  const auto index = node->schema().argumentIndexWithName(name);
  TORCH_INTERNAL_ASSERT(index, name);
  node->replaceInput(static_cast<size_t>(*index), value);
}

void move_prepack_before(Node* prepack, Node* place) {
  if (prepack->isBefore(place)) return;
  for (Value* input : prepack->inputs()) {
    if (!input->node()->isBefore(place)) input->node()->moveBefore(place);
  }
  prepack->moveBefore(place);
}

std::vector<std::string> Anchor::post_ops() const {
  std::vector<std::string> names;
  for (const IValue& name : toIValue(argument("post_ops"))->toListRef()) names.push_back(name.toStringRef());
  return names;
}

at::ScalarType Anchor::dtype() const { return toIValue(argument("weight"))->toTensor().scalar_type(); }

bool Anchor::has_weight() const { return prepack_->hasNamedInput("weight"); }

int64_t Anchor::spatial_rank() const {
  return prepack_->kind() == Symbol::fromQualString("ipex::convolution_prepack")
             ? toIValue(argument("weight"))->toTensor().dim() - 2
             : 0;
}

bool Anchor::is_transposed() const { return spatial_rank() > 0 && toIValue(argument("transposed"))->toBool(); }

int64_t Anchor::output_channels() const {
  const at::Tensor weight = toIValue(argument("weight"))->toTensor();
  return is_transposed() ? weight.size(1) * toIValue(argument("groups"))->toInt() : weight.size(0);
}

at::Tensor Anchor::scaled_weight(const at::Tensor& scale) const {
  const at::Tensor weight = toIValue(argument("weight"))->toTensor();
  std::vector<int64_t> shape(weight.dim(), 1);
  shape[0] = -1;
  if (!is_transposed()) {
    return weight.to(at::kDouble) * scale.view(shape);
  }
  // Transposed, the output channels of a group are dimension 1, and the groups follow one another in dimension 0.
  const int64_t groups = toIValue(argument("groups"))->toInt();
  const at::Tensor per_group = scale.view({groups, -1}).repeat_interleave(weight.size(0) / groups, 0);
  shape[0] = weight.size(0);
  shape[1] = weight.size(1);
  return weight.to(at::kDouble) * per_group.view(shape);
}

void Anchor::fold(const at::Tensor& scale, const at::Tensor& shift) const {
  const at::Tensor weight = toIValue(argument("weight"))->toTensor();
  const auto bias = toIValue(argument("bias"));
  const at::Tensor folded_bias = bias->isTensor() ? bias->toTensor().to(at::kDouble) * scale + shift : shift;
  set_argument("weight", scaled_weight(scale).to(weight.scalar_type()).contiguous(weight.suggest_memory_format()));
  set_argument("bias", folded_bias.to(at::kFloat));
}

bool Anchor::overflows(const at::Tensor& scale) const {
  const at::Tensor weight = toIValue(argument("weight"))->toTensor();
  return !scaled_weight(scale).to(weight.scalar_type()).isfinite().equal(weight.isfinite());
}

void Anchor::append_post_op(const std::string& post_op, Value* operand) const {
  c10::List<std::string> all_post_ops;
  for (const std::string& known : post_ops()) all_post_ops.push_back(known);
  all_post_ops.push_back(post_op);
  set_argument("post_ops", all_post_ops);
  if (operand) {
    const WithInsertPoint guard(run_);
    std::vector<Value*> all = operands().vec();
    all.push_back(operand);
    Graph* graph = run_->owningGraph();
    run_->replaceInput(2, graph->insertNode(graph->createList(c10::TensorType::get(), all))->output());
  }
}

void Anchor::take_over(Node* node) const {
  output()->copyMetadata(node->output());
  node->output()->replaceAllUsesWith(output());
  node->destroy();
}

bool is_packable(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf; }

std::optional<std::string> reason_against_weight(const Node* node) {
  const auto weight_value = toIValue(node->namedInput("weight"));
  if (!weight_value || !weight_value->isTensor()) return "its weight is not a constant";
  const at::Tensor weight = weight_value->toTensor();
  if (!is_packable(weight.scalar_type())) {
    return c10::str("its weight is ", weight.scalar_type(), ", not float32, bfloat16 or float16");
  }
  if (!weight.device().is_cpu()) return "its weight is not a CPU tensor";
  if (weight.numel() == 0) return "its weight is empty";
  return std::nullopt;
}

std::optional<std::string> reason_against_bias(const Node* node, int64_t output_channels) {
  const auto value = toIValue(node->namedInput("bias"));
  if (!value) return "its bias is not a constant";
  if (!value->isTensor()) return std::nullopt;
  const at::Tensor bias = value->toTensor();
  if (bias.scalar_type() != toIValue(node->namedInput("weight"))->toTensor().scalar_type()) {
    return c10::str("its bias is ", bias.scalar_type(), ", its weight is not");
  }
  if (bias.dim() != 1 || bias.size(0) != output_channels || !bias.device().is_cpu()) {
    return "its bias is not a vector of its channels";
  }
  return std::nullopt;
}

}  // namespace ipex::passes
