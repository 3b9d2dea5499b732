// prepack_grouped_linear: rows in groups, each with a constant matrix of its own, as mixtures of experts have them, become
// packed linears.
//
//   before   %y = aten::_grouped_mm(%x, %w, %offsets, %none, %none)    w: [groups, in, out], a constant
//   after    %layers = prim::ListConstruct(%context0, %context1, ..)   context = ipex::linear_prepack(w[i] transposed, ..)
//            %context = ipex::grouped_linear_prepack(%layers)
//            %y = ipex::grouped_linear_run(%x, %offsets, %context)
//
// The layers take no post-ops, have no run op of their own, and stay float32.
// Declines when the matrices are no constant of float32 with three dimensions, when there are no offsets, and with a bias
// or another dtype for the result.
//
// Matrices of codes are packed as they are:
//
//   before   %y = ipex::grouped_weight_only_linear(%x, %ends, %codes, %scales, %offsets, %inputs, %group_size, ..)
//   after    %context = ipex::grouped_linear_prepack(%codes, %scales, %offsets, %inputs, %group_size, ..)
//            %y = ipex::grouped_linear_run(%x, %ends, %context)
//
// Declines when one of the arguments but the first two is no constant.
#include <torch/csrc/jit/ir/constants.h>

#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::IValue;
using torch::jit::toIValue;

std::optional<std::string> reason_against(const Node* node) {
  const auto weight = toIValue(node->input(1));
  if (!weight || !weight->isTensor()) return "its weight is not a constant";
  const at::Tensor tensor = weight->toTensor();
  if (tensor.scalar_type() != at::kFloat || !tensor.device().is_cpu()) return "its weight is not a float32 CPU tensor";
  if (tensor.dim() != 3) return c10::str("its weight has ", tensor.dim(), " dimensions, not 3");
  if (tensor.numel() == 0) return "its weight is empty";
  if (node->input(2)->mustBeNone()) return "it has no offsets";
  if (!node->input(3)->mustBeNone() || !node->input(4)->mustBeNone()) return "it has a bias or a dtype";
  return std::nullopt;
}

void rewrite(Node* node, const Options& options) {
  Graph* graph = node->owningGraph();
  const torch::jit::WithInsertPoint guard(node);
  const at::Tensor weights = toIValue(node->input(1))->toTensor();
  Value* const none = graph->insertConstant(IValue());
  Value* const no_post_ops = graph->insertConstant(c10::List<std::string>());
  Value* const widens = graph->insertConstant(false);
  Value* const mode =
      options.fp32_math_mode ? graph->insertConstant(static_cast<int64_t>(*options.fp32_math_mode)) : none;
  std::vector<Value*> layers;
  for (const at::Tensor& weight : weights.unbind(0)) {
    Value* plain = graph->insertConstant(weight.t().contiguous());
    layers.push_back(graph->insert(Symbol::fromQualString("ipex::linear_prepack"),
                                   {plain, none, no_post_ops, none, none, mode, none, widens}));
  }
  Value* list = graph->insertNode(graph->createList(layers[0]->type(), layers))->output();
  Value* context = graph->insert(Symbol::fromQualString("ipex::grouped_linear_prepack"), {list});
  Value* result =
      graph->insert(Symbol::fromQualString("ipex::grouped_linear_run"), {node->input(0), node->input(2), context});
  replace(node, result->node());
}

void rewrite_codes(Node* node) {
  Graph* graph = node->owningGraph();
  const torch::jit::WithInsertPoint guard(node);
  const auto arguments = node->inputs().slice(2);
  Value* packed = graph->insert(Symbol::fromQualString("ipex::grouped_linear_prepack"),
                                std::vector<torch::jit::NamedValue>(arguments.begin(), arguments.end()));
  Value* result =
      graph->insert(Symbol::fromQualString("ipex::grouped_linear_run"), {node->input(0), node->input(1), packed});
  replace(node, result->node());
}

bool run(Context& context) {
  bool changed = false;
  for_each(context.graph, "ipex::grouped_weight_only_linear", [&](Node* node) {
    for (const Value* value : node->inputs().slice(2)) {
      if (!toIValue(value)) return context.declined(node, "its weight is not a constant");
    }
    context.applied(node, "prepacked");
    rewrite_codes(node);
    changed = true;
  });
  for_each(context.graph, "aten::_grouped_mm", [&](Node* node) {
    if (const auto reason = reason_against(node)) return context.declined(node, *reason);
    context.applied(node, "prepacked");
    rewrite(node, context.options);
    changed = true;
  });
  return changed;
}

}  // namespace

Pass prepack_grouped_linear() { return {"prepack_grouped_linear", run, breaks(layers_apart)}; }

}  // namespace ipex::passes
