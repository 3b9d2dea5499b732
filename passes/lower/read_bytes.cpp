// read_bytes: ops that are no layers read 8-bit numbers too, where a layer before them gives these.
//
//   before   %x = ipex::dequantize(%numbers, %scale, %zero_point)
//            %list = prim::ListConstruct(%x, %gate)    %y = ipex::elementwise.bytes(%list, %steps, %to, %zero)
//   after    %list = prim::ListConstruct(%numbers, %gate)
//            %y = ipex::elementwise.of_bytes(%list, %steps, [%scale, %zero_point, 0, 0], [%to, %zero])
//
// Means of whole images read them in the same way, and numbers of one scale become those of another in one pass
// (ipex::requantize). The floats are the same ones, but never lie in memory.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

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

Node* insert_before(Node* node, const char* op, at::ArrayRef<Value*> inputs) {
  const WithInsertPoint guard(node);
  Graph& graph = *node->owningGraph();
  return graph.insertNode(graph.create(Symbol::fromQualString(op), inputs));
}

// Those that nobody else reads: in a list with other readers, others want floats.
bool reads_list_alone(const Node* node) { return own_elements_of(node->input(0)).has_value(); }

Node* elementwise_of_bytes(Node* node) {
  const auto given = node->input(0)->node()->inputs();
  if (!reads_list_alone(node) ||
      std::none_of(given.begin(), given.end(), [](const Value* value) { return is_dequantize(value->node()); })) {
    return nullptr;
  }
  std::vector<Value*> inputs;
  std::vector<double> affines, result;
  for (Value* value : given) {
    const bool is_of_bytes = is_dequantize(value->node());
    inputs.push_back(is_of_bytes ? value->node()->input(0) : value);
    const std::vector<double> own = is_of_bytes ? numbers_of(value->node(), 1) : std::vector<double>{0, 0};
    affines.insert(affines.end(), own.begin(), own.end());
  }
  if (node->inputs().size() > 2) result = numbers_of(node, 2);
  const WithInsertPoint guard(node);
  Graph& graph = *node->owningGraph();
  Value* list = graph.insertNode(graph.createList(c10::TensorType::get(), inputs))->output();
  return insert_before(node, "ipex::elementwise",
                       {list, node->input(1), graph.insertConstant(affines), graph.insertConstant(result)});
}

// An op whose first input may be numbers, by the scale and the zero point that come last.
Node* with_affine(Node* node, const char* op) {
  const Node* maker = node->input(0)->node();
  if (!is_dequantize(maker)) return nullptr;
  std::vector<Value*> inputs = node->inputs().vec();
  inputs[0] = maker->input(0);
  inputs.insert(inputs.end(), {maker->input(1), maker->input(2)});
  return insert_before(node, op, inputs);
}

Node* requantize(Node* node) {
  const Node* maker = node->input(0)->node();
  if (!is_dequantize(maker) || !toIValue(node->input(3))->isNone()) return nullptr;
  return insert_before(node, "ipex::requantize",
                       {maker->input(0), maker->input(1), maker->input(2), node->input(1), node->input(2)});
}

// The same op of numbers, if it has one and a layer gives them.
Node* of_bytes(Node* node) {
  static const OpName elementwise("ipex::elementwise"), pool("ipex::adaptive_avg_pool2d"), mean("ipex::mean"),
      quantize("ipex::quantize");
  if (elementwise.is_of(node)) return elementwise_of_bytes(node);
  if (pool.is_of(node)) return with_affine(node, "ipex::adaptive_avg_pool2d");
  if (mean.is_of(node)) return with_affine(node, "ipex::mean");
  return quantize.is_of(node) ? requantize(node) : nullptr;
}

bool run(Context& context) {
  std::vector<Node*> unread;
  for_each(context.graph, "ipex::dequantize", [&](Node* node) { unread.push_back(node); });
  bool changed = false;
  for_each_node(context.graph->block(), [&](Node* node) {
    Node* list = node->inputs().empty() ? nullptr : node->input(0)->node();
    Node* made = of_bytes(node);
    if (!made) return;
    context.applied(made, "reads 8-bit numbers");
    replace(node, made);
    if (makes_list(list) && !list->hasUses()) list->destroy();
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
