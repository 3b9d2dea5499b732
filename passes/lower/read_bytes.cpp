// read_bytes: ops that are no layers read 8-bit numbers too, where a layer before them gives these.
//
//   before   %x = ipex::dequantize(%numbers, %scale, %zero_point)
//            %list = prim::ListConstruct(%x, %gate)          %y = ipex::elementwise(%list, %steps)
//   after    %list = prim::ListConstruct(%numbers, %gate)
//            %y = ipex::elementwise(%list, %steps, %affines=[%scale, %zero_point, 0, 0])
//
// Means of whole images read them in the same way, and numbers of one scale become those of another in one pass
// (ipex::requantize). The floats are the same ones, but never lie in memory.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "anchor/anchor.h"
#include "chains/elementwise_ports.h"
#include "ir/calls.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;
using torch::jit::WithInsertPoint;

bool is_dequantize(const Node* node) {
  static const OpName dequantize("ipex::dequantize");
  return dequantize.is_of(node);
}

std::vector<double> numbers_of(const Node* node, size_t first) {
  return {toIValue(node->input(first))->toDouble(), static_cast<double>(toIValue(node->input(first + 1))->toInt())};
}

bool read_in_list(Node* node) {
  std::vector<Value*> inputs = node->input(0)->node()->inputs().vec();
  // Numbers that nobody else reads: in a list with other readers, others want floats.
  if (!own_elements_of(node->input(0)) ||
      std::none_of(inputs.begin(), inputs.end(), [](const Value* value) { return is_dequantize(value->node()); })) {
    return false;
  }
  std::vector<double> affines;
  for (Value*& input : inputs) {
    const Node* maker = input->node();
    const std::vector<double> own = is_dequantize(maker) ? numbers_of(maker, 1) : std::vector<double>{0, 0};
    if (is_dequantize(maker)) input = maker->input(0);
    affines.insert(affines.end(), own.begin(), own.end());
  }
  give_inputs(node, inputs);
  set_argument(node, "affines", affines);
  return true;
}

// An op whose first input may be numbers.
bool read_first(Node* node) {
  const Node* maker = node->input(0)->node();
  if (!is_dequantize(maker)) return false;
  set_argument(node, "affines", numbers_of(maker, 1));
  node->replaceInput(0, maker->input(0));
  return true;
}

// The numbers by another scale, where they become such at once.
Node* requantize(Node* quantize) {
  const Node* maker = quantize->input(0)->node();
  if (!is_dequantize(maker) || !toIValue(quantize->input(3))->isNone()) return nullptr;
  const WithInsertPoint guard(quantize);
  Graph& graph = *quantize->owningGraph();
  Node* made = graph.insertNode(
      graph.create(Symbol::fromQualString("ipex::requantize"),
                   {maker->input(0), maker->input(1), maker->input(2), quantize->input(1), quantize->input(2)}));
  replace(quantize, made);
  return made;
}

// What reads numbers now. Null where nothing changed.
Node* read_numbers(Node* node) {
  static const OpName quantize("ipex::quantize");
  if (quantize.is_of(node)) return requantize(node);
  if (!has_argument(node, "affines")) return nullptr;
  const bool reads = makes_list(node->input(0)->node()) ? read_in_list(node) : read_first(node);
  return reads ? node : nullptr;
}

bool run(Context& context) {
  std::vector<Node*> unread;
  for_each(context.graph, "ipex::dequantize", [&](Node* node) { unread.push_back(node); });
  bool changed = false;
  for_each_node(context.graph->block(), [&](Node* node) {
    const Node* reader = read_numbers(node);
    if (!reader) return;
    context.applied(reader, "reads 8-bit numbers");
    changed = true;
  });
  for (Node* node : unread) {
    if (!node->hasUses()) node->destroy();
  }
  return changed;
}

}  // namespace

Pass read_bytes() { return {"read_bytes", run, needs(lists_are_values, layers_apart, ops_lowered)}; }

}  // namespace ipex::passes
