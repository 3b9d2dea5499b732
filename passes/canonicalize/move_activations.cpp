// move_activations: an activation of a view of a linear's result becomes one of the result itself, so that the linear can
// take it over.
//
//   before   %y = aten::linear(%x, %weight, %bias)    %v = aten::view(%y, %sizes)    %z = aten::gelu(%v, ..)
//   after    %y = aten::linear(%x, %weight, %bias)    %a = aten::gelu(%y, ..)        %z = aten::view(%a, %sizes)
//
// GPT-2's layers are written so: they flatten what they get and give the result its dimensions back. Nothing changes
// for those who ask %y for its size. Declines when somebody else reads %y or %v, and when an argument is no
// constant number.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_set>

#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

// Ops that do the same to every element.
bool is_activation(const Node* node) {
  static const std::unordered_set<std::string> kinds{
      "aten::relu",      "aten::relu6",       "aten::leaky_relu", "aten::elu",      "aten::selu", "aten::celu",
      "aten::gelu",      "ipex::erf_gelu",    "aten::silu",       "aten::mish",     "aten::tanh", "aten::sigmoid",
      "aten::hardswish", "aten::hardsigmoid", "aten::hardtanh",   "aten::softplus", "aten::clamp"};
  return kinds.count(kind_of(node)) > 0;
}

bool is_view(const Node* node) {
  static const std::unordered_set<std::string> kinds{"aten::reshape", "aten::flatten", "aten::unflatten",
                                                     "aten::unsqueeze", "aten::squeeze"};
  // A view as another dtype takes no sizes.
  const bool has_sizes = node->kind() == c10::aten::view && node->input(1)->type()->kind() == c10::TypeKind::ListType;
  return has_sizes || kinds.count(kind_of(node)) > 0;
}

// Whether a linear computes `value`, with activations that were moved to it.
bool comes_from_linear(const Value* value) {
  while (is_activation(value->node())) value = value->node()->input(0);
  return value->node()->kind() == c10::aten::linear;
}

// Why the activation can't change places with the view. Empty when it can.
std::string reason_against(const Node* activation, const Node* view) {
  const Value* y = view->input(0);
  if (activation->owningBlock() != view->owningBlock() || activation->owningBlock() != y->node()->owningBlock()) {
    return "it is not always computed";
  }
  if (view->output()->uses().size() != 1) return "its input has another reader";
  const bool reads_sizes_only = std::all_of(
      y->uses().begin(), y->uses().end(), [&](const Use& use) { return use.user == view || asks_for_sizes(use.user); });
  if (!reads_sizes_only) return "the result of the linear has another reader";
  const auto& inputs = activation->inputs();
  // A tensor, which clamp may have, is spread over the view's dimensions.
  const bool are_numbers = std::all_of(inputs.begin() + 1, inputs.end(), [](const Value* v) {
    return torch::jit::toIValue(v).has_value() && !has_tensor_type(v);
  });
  return are_numbers ? "" : "an argument is no constant number";
}

bool run(const std::shared_ptr<Graph>& graph, Recorder& recorder) {
  bool changed = false;
  for_each_node(graph->block(), [&](Node* node) {
    if (!is_activation(node)) return;
    Node* view = node->input(0)->node();
    if (!is_view(view) || !comes_from_linear(view->input(0))) return;
    if (const std::string reason = reason_against(node, view); !reason.empty()) return recorder.declined(node, reason);
    recorder.applied(node, "moved before " + describe(view));
    Value* y = view->input(0);
    const torch::jit::WithInsertPoint guard(y->node()->next());
    Node* moved = graph->createClone(
        node, [&](Value* v) { return v == view->output() ? y : graph->insertConstant(*torch::jit::toIValue(v)); });
    graph->insertNode(moved);
    moved->output()->setType(c10::TensorType::get());
    y->replaceAllUsesAfterNodeWith(moved, moved->output());
    view->output()->setType(node->output()->type());
    node->output()->replaceAllUsesWith(view->output());
    node->destroy();
    changed = true;
  });
  return changed;
}

}  // namespace

Pass move_activations() { return {"move_activations", run}; }

}  // namespace ipex::passes
