// quantize_embeddings: where the user asked for it, tables of embeddings become rows of 8-bit numbers.
//
//   before   %y = ipex::embedding_bag(%weight, %indices, %offsets, ..)
//            %z = aten::embedding(%weight, %indices, ..)
//   after    %y = ipex::embedding_bag_in_int8(%codes, %ranges, %indices, %offsets, ..)
//            %z = ipex::embedding_in_int8(%codes, %ranges, %indices)
//
// Each row has a scale and a smallest number of its own. Declines the layers that the user wants in float; a table that is no
// constant, not float32, not finite, or so small that nothing is gained; and one that is overwritten, as max_norm does.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <map>

#include "ir/aliasing.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

// A sum of rows that are in cache is as fast in floats.
constexpr int64_t least_elements_of_a_table = 1 << 14, least_elements_to_sum = 1 << 22;

bool reduces_by_sum(Node* node) {
  const auto mode = node->hasNamedInput("mode") ? toIValue(node->namedInput("mode")) : std::nullopt;
  return mode && mode->toInt() == 0;
}

// The tables that are there already: two embeddings may have one.
class Tables {
 public:
  explicit Tables(Graph* graph) : graph_(graph) {}

  // Codes and ranges.
  const std::vector<Value*>& rounded(Value* weight) {
    std::vector<Value*>& made = made_[weight];
    if (!made.empty()) return made;
    const torch::jit::WithInsertPoint guard(*graph_->block()->nodes().begin());
    Node* round = graph_->create(Symbol::fromQualString("ipex::round_rows"), {weight}, /*num_outputs=*/2);
    torch::jit::Stack stack{*toIValue(weight)};
    round->getOperation()(stack);
    round->destroy();
    for (const torch::jit::IValue& tensor : stack) made.push_back(graph_->insertConstant(tensor));
    return made;
  }

 private:
  Graph* graph_;
  std::map<Value*, std::vector<Value*>> made_;
};

// Whether somebody in the graph writes to a constant that lies in this memory.
bool is_overwritten(Graph* graph, const at::Tensor& weight) {
  bool found = false;
  for_each_node(graph->block(), [&](Node* node) {
    if (node->kind() != c10::prim::Constant) return;
    const auto value = toIValue(node->output());
    if (!value || !value->isTensor() || !value->toTensor().is_alias_of(weight)) return;
    const auto& uses = node->output()->uses();
    found = found || std::any_of(uses.begin(), uses.end(), overwrites);
  });
  return found;
}

std::optional<std::string> reason_against_table(Node* node) {
  const auto value = toIValue(node->input(0));
  if (!value || !value->isTensor()) return "its table is not a constant";
  const at::Tensor weight = value->toTensor();
  if (weight.scalar_type() != at::kFloat) return c10::str("its table is ", weight.scalar_type(), ", not float32");
  if (weight.dim() != 2 || !weight.device().is_cpu()) return "its table is not a CPU matrix";
  if (weight.numel() < (reduces_by_sum(node) ? least_elements_to_sum : least_elements_of_a_table))
    return c10::str("its table of ", weight.sizes(), " is too small to gain");
  if (is_overwritten(node->owningGraph(), weight)) return "its rows are overwritten";
  if (!weight.isfinite().all().item<bool>()) return "its table is not finite";
  return std::nullopt;
}

// The layers to leave in float, where anybody asked for tables in 8 bits.
const std::vector<std::string>* asked(const Options& options) {
  const auto& linears = options.quantized_linears;
  if (linears && linears->embeddings) return &linears->float_layers;
  const auto& calibrated = options.quantization;
  return calibrated && calibrated->embeddings && !calibrated->observes ? &calibrated->float_layers : nullptr;
}

bool quantize_tables(Context& context) {
  const std::vector<std::string>* float_layers = asked(context.options);
  if (!float_layers) return false;
  Tables tables(context.graph.get());
  bool changed = false;
  const auto quantize = [&](const char* kind, const char* name, size_t arguments) {
    for_each(context.graph, kind, [&](Node* node) {
      if (is_in_one_of(node, *float_layers)) {
        return context.declined(node, "it is one of the layers to leave in float");
      }
      if (const auto reason = reason_against_table(node)) return context.declined(node, *reason);
      context.applied(node, "its rows are int8");
      std::vector<Value*> inputs = tables.rounded(node->input(0));
      const auto others = node->inputs().slice(1, arguments - 1);
      inputs.insert(inputs.end(), others.begin(), others.end());
      const torch::jit::WithInsertPoint guard(node);
      replace(node, context.graph->insertNode(context.graph->create(Symbol::fromQualString(name), inputs)));
      changed = true;
    });
  };
  quantize("aten::embedding", "ipex::embedding_in_int8", 2);
  quantize("ipex::embedding_bag", "ipex::embedding_bag_in_int8", 7);
  return changed;
}

}  // namespace

Pass quantize_embeddings() {
  return {"quantize_embeddings", quantize_tables, needs(aten_names), /*reasons_stay=*/true};
}

}  // namespace ipex::passes
