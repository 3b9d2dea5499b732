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

#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

bool is_activation(const Node* node) { return has_trait(node, trait::elementwise); }

bool is_view(const Node* node) { return has_trait(node, trait::reshapes); }

// Whether a linear computes `value`, with activations that were moved to it.
bool comes_from_linear(const Value* value) {
  while (is_activation(value->node())) value = value->node()->input(0);
  static const OpName linear("aten::linear");
  return linear.is_of(value->node());
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

bool run(Context& context) {
  bool changed = false;
  for_each_node(context.graph->block(), [&](Node* node) {
    if (!is_activation(node)) return;
    Node* view = node->input(0)->node();
    if (!is_view(view) || !comes_from_linear(view->input(0))) return;
    if (const std::string reason = reason_against(node, view); !reason.empty()) return context.declined(node, reason);
    context.applied(node, "moved before " + describe(view));
    Value* y = view->input(0);
    const torch::jit::WithInsertPoint guard(y->node()->next());
    Node* moved = context.graph->createClone(node, [&](Value* v) {
      return v == view->output() ? y : context.graph->insertConstant(*torch::jit::toIValue(v));
    });
    context.graph->insertNode(moved);
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
