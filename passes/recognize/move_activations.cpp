// move_activations: an activation of a view of a linear's or convolution's result becomes one of the result itself, so that
// the packed op can take it over.
//
//   before   %y = aten::linear(%x, %weight, %bias)    %v = aten::view(%y, %sizes)    %z = aten::gelu(%v, ..)
//   after    %y = aten::linear(%x, %weight, %bias)    %a = aten::gelu(%y, ..)        %z = aten::view(%a, %sizes)
//
// GPT-2's layers are written so: they flatten what they get and give the result its dimensions back. So are those of PVT and
// SegFormer: a convolution's image becomes tokens, by a view and a transpose. Nothing changes for those who ask %y for its
// size. Declines when somebody else reads %y or %v, when something is overwritten in between, when an argument is no constant
// number, and at a transpose where somebody sees strides (stride_readers.h).
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "ir/stride_readers.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool is_activation(const Node* node) { return has_trait(node, trait::elementwise); }

bool is_view(const Node* node) { return has_trait(node, trait::reshapes) || has_trait(node, trait::moves_dimensions); }

// Whether a linear or a convolution computes `value`, with views, and a batch_norm and activations that were moved to it.
bool comes_from_product(const Value* value) {
  static const OpName linear("aten::linear"), batch_norm("aten::batch_norm");
  while (is_activation(value->node()) || is_view(value->node()) || batch_norm.is_of(value->node())) {
    value = value->node()->input(0);
  }
  return linear.is_of(value->node()) || has_trait(value->node(), trait::convolves);
}

// Why the activation can't change places with the view. Empty when it can.
std::string reason_against(const Node* activation, const Node* view) {
  const Value* y = view->input(0);
  if (activation->owningBlock() != y->node()->owningBlock()) return "it is not always computed";
  if (view->output()->uses().size() != 1) return "its input has another reader";
  const bool reads_sizes_only = std::all_of(
      y->uses().begin(), y->uses().end(), [&](const Use& use) { return use.user == view || asks_for_sizes(use.user); });
  if (!reads_sizes_only) return "what it is a view of has another reader";
  if (written_between(y->node(), activation)) return "something is overwritten in between";
  const auto& inputs = activation->inputs();
  // A tensor, which clamp may have, is spread over the view's dimensions.
  const bool are_numbers = std::all_of(inputs.begin() + 1, inputs.end(), [](const Value* v) {
    return torch::jit::toIValue(v).has_value() && !has_tensor_type(v);
  });
  return are_numbers ? "" : "an argument is no constant number";
}

// Puts the activation before the view, and returns it.
Node* change_places(Node* activation, Node* view) {
  Graph* graph = activation->owningGraph();
  Value* y = view->input(0);
  const torch::jit::WithInsertPoint guard(y->node()->next());
  Node* moved = graph->createClone(
      activation, [&](Value* v) { return v == view->output() ? y : graph->insertConstant(*torch::jit::toIValue(v)); });
  graph->insertNode(moved);
  moved->output()->setType(c10::TensorType::get());
  y->replaceAllUsesAfterNodeWith(moved, moved->output());
  view->output()->setType(activation->output()->type());
  activation->output()->replaceAllUsesWith(view->output());
  activation->destroy();
  return moved;
}

bool run(Context& context) {
  bool changed = false;
  const StrideReaders readers(context.graph);
  for_each_node(context.graph->block(), [&](Node* node) {
    if (!is_activation(node)) return;
    const bool is_seen = readers.see(node->output());
    for (Node* view = node->input(0)->node(); is_view(view); view = node->input(0)->node()) {
      if (!comes_from_product(view->input(0))) return;
      if (is_seen && has_trait(view, trait::moves_dimensions))
        return context.declined(node, "the strides of a result depend on it");
      if (const std::string reason = reason_against(node, view); !reason.empty()) return context.declined(node, reason);
      context.merged(node, "moved before ", view);
      node = change_places(node, view);
      changed = true;
    }
  });
  return changed;
}

}  // namespace

Pass move_activations() { return {"move_activations", run, needs(aten_layers, one_linear_pattern)}; }

}  // namespace ipex::passes
