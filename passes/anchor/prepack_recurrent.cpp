// prepack_lstm, prepack_gru: split a recurrent layer with constant weights into packing, done once, and running.
//
//   before   %hx = prim::ListConstruct(%h0, %c0)
//            %y, %h, %c = aten::lstm(%x, %hx, %params, %has_biases, %num_layers, %dropout, %train=0, %bidirectional,
//                                    %batch_first)
//   after    %context = ipex::lstm_prepack(%params, %has_biases, %num_layers, %bidirectional, %batch_first,
//                                           %math_mode=None)
//            %y, %h, %c = ipex::lstm_run(%x, %h0, %c0, %context)
//
// gru is the same with one state, which is no list. Dropout between the layers does nothing in eval mode.
// Declines a PackedSequence, training mode, weights that are no constants, not float32 or do not fit together, and an
// initial state whose list others may change.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;
using torch::jit::WithInsertPoint;

struct Kind {
  const char* name;
  int64_t gates;
  bool may_project;
};

// The constant tensors of a list. Empty when they aren't.
std::vector<at::Tensor> constant_tensors(const Value* list) {
  if (const auto value = toIValue(list))
    return value->isTensorList() ? value->toTensorVector() : std::vector<at::Tensor>();
  std::vector<at::Tensor> tensors;
  const auto elements = elements_of(list);
  if (!elements) return {};
  for (const Value* element : *elements) {
    const auto value = toIValue(element);
    if (!value || !value->isTensor()) return {};
    tensors.push_back(value->toTensor().detach());
  }
  return tensors;
}

std::optional<std::string> reason_against_weights(const Node* node, const Kind& kind) {
  const std::vector<at::Tensor> weights = constant_tensors(node->namedInput("params"));
  if (weights.empty()) return "its weights are not constants";
  for (const at::Tensor& weight : weights) {
    if (weight.scalar_type() != at::kFloat) return c10::str("a weight is ", weight.scalar_type(), ", not float32");
    if (!weight.device().is_cpu()) return "a weight is not a CPU tensor";
    if (weight.numel() == 0) return "a weight is empty";
  }
  const bool has_biases = toIValue(node->namedInput("has_biases"))->toBool();
  const int64_t directions = toIValue(node->namedInput("bidirectional"))->toBool() ? 2 : 1;
  const int64_t count = directions * toIValue(node->namedInput("num_layers"))->toInt();
  const auto each = count > 0 ? static_cast<int64_t>(weights.size()) / count : 0;
  const int64_t unprojected = has_biases ? 4 : 2;
  const bool is_projected = kind.may_project && each == unprojected + 1;
  const char* misfit = "its weights do not fit together";
  if (each * count != static_cast<int64_t>(weights.size()) || each != unprojected + (is_projected ? 1 : 0)) {
    return misfit;
  }
  if (weights[0].dim() != 2 || weights[1].dim() != 2 || weights[0].size(0) % kind.gates) return misfit;
  const int64_t rows = weights[0].size(0), units = rows / kind.gates, width = weights[1].size(1);
  for (int64_t i = 0; i < count; ++i) {
    std::vector<std::vector<int64_t>> expected{{rows, i < directions ? weights[0].size(1) : directions * width},
                                               {rows, is_projected ? width : units}};
    if (has_biases) expected.insert(expected.end(), 2, {rows});
    if (is_projected) expected.push_back({width, units});
    for (int64_t j = 0; j < each; ++j) {
      if (weights[i * each + j].sizes() != at::IntArrayRef(expected[j])) return misfit;
    }
  }
  return std::nullopt;
}

std::optional<std::string> reason_against(const Node* node, const Kind& kind) {
  if (node->schema().overload_name() != "input") return "it runs on a PackedSequence: no prepacked form yet";
  for (const char* name : {"has_biases", "num_layers", "train", "bidirectional", "batch_first"}) {
    if (!toIValue(node->namedInput(name))) return std::string("its ") + name + " is not a constant";
  }
  if (toIValue(node->namedInput("train"))->toBool()) return "it is not in eval mode";
  const Value* state = node->namedInput("hx");
  const bool is_list = state->type()->kind() == c10::TypeKind::ListType;
  if (is_list && elements_of(state).value_or(std::vector<Value*>()).size() != 2) {
    return "its initial state is not a list of two tensors, or others may change it";
  }
  return reason_against_weights(node, kind);
}

Node* insert_run(Node* node, const Kind& kind) {
  Graph* graph = node->owningGraph();
  const WithInsertPoint guard(node);
  const auto op = [&](const char* suffix) { return Symbol::fromQualString(c10::str("ipex::", kind.name, suffix)); };
  Value* weights = node->namedInput("params");
  if (!toIValue(weights)) weights = graph->insertConstant(c10::List<at::Tensor>(constant_tensors(weights)));
  Value* process_math_mode = graph->insertConstant(torch::jit::IValue());
  Value* context = graph->insert(
      op("_prepack"), {weights, node->namedInput("has_biases"), node->namedInput("num_layers"),
                       node->namedInput("bidirectional"), node->namedInput("batch_first"), process_math_mode});
  std::vector<Value*> inputs{node->namedInput("input")};
  Value* state = node->namedInput("hx");
  if (state->type()->kind() == c10::TypeKind::ListType) {
    inputs.insert(inputs.end(), state->node()->inputs().begin(), state->node()->inputs().end());
  } else {
    inputs.push_back(state);
  }
  inputs.push_back(context);
  return graph->insertNode(graph->create(op("_run"), inputs, node->outputs().size()));
}

Pass prepack(const Kind& kind) {
  const auto run = [kind](Context& context) {
    bool changed = false;
    for_each(context.graph, c10::str("aten::", kind.name), [&](Node* node) {
      if (const auto reason = reason_against(node, kind)) return context.declined(node, *reason);
      context.applied(node, "prepacked");
      replace(node, insert_run(node, kind));
      changed = true;
    });
    return changed;
  };
  return {c10::str("prepack_", kind.name), run, needs(lists_are_values) + breaks(aten_layers)};
}

}  // namespace

Pass prepack_lstm() { return prepack({"lstm", 4, true}); }
Pass prepack_gru() { return prepack({"gru", 3, false}); }

}  // namespace ipex::passes
