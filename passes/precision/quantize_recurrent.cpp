// quantize_recurrent: where the user asked for dynamic int8, weights of lstm and gru become integers.
//
//   before   %context = ipex::lstm_prepack(%params, %has_biases, %num_layers, %bidirectional, %batch_first, %math_mode)
//            %y, %h, %c = ipex::lstm_run(%x, %h0, %c0, %context)
//   after    %context = ipex::dynamic_lstm_prepack(%params, %has_biases, %num_layers, %bidirectional, %batch_first)
//            %y, %h, %c = ipex::dynamic_lstm_run(%x, %h0, %c0, %context)
//
// gru is the same with one state. Declines the layers that the user wants in float, weights that are not finite or so small
// that this CPU gains nothing, and rows whose sums don't fit 32 bits.
// Throws when a layer was packed by an earlier optimisation.
#include <ATen/ATen.h>
#include <ipex/isa.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

// Of the largest matrix. With fewer, a step takes longer to round and to call than to multiply. Without VNNI there is
// something to gain only where a step waits for memory.
constexpr int64_t least_elements_with_vnni = 1 << 13, least_elements_without = 1 << 19;
constexpr int64_t most_products_in_32_bits = 1 << 16;

std::optional<std::string> reason_against_int8(const Node* prepack) {
  const std::vector<at::Tensor> weights = toIValue(prepack->namedInput("params"))->toTensorVector();
  int64_t largest = 0;
  for (const at::Tensor& weight : weights) {
    if (!weight.isfinite().all().item<bool>()) return "a weight is not finite";
    if (weight.dim() != 2) continue;
    largest = std::max(largest, weight.numel());
    if (weight.size(1) > most_products_in_32_bits) {
      return c10::str("its sums of ", weight.size(1), " products don't fit 32 bits");
    }
  }
  if (isa::current() == isa::Level::DEFAULT)
    return "without AVX2, products of 8-bit numbers are slower than those of floats";
  if (isa::has_avx512_vnni() || isa::has_avx2_vnni()) {
    if (largest < least_elements_with_vnni) return "its weights are too small to gain";
  } else if (largest < least_elements_without) {
    return "its weights are too small to gain without VNNI";
  }
  return std::nullopt;
}

void quantize_layer(Node* run, const std::string& name) {
  Graph* graph = run->owningGraph();
  const torch::jit::WithInsertPoint guard(run);
  const size_t context = run->inputs().size() - 1;
  const Node* prepack = run->input(context)->node();
  std::vector<torch::jit::NamedValue> arguments;
  for (const char* argument : {"params", "has_biases", "num_layers", "bidirectional", "batch_first"}) {
    arguments.emplace_back(prepack->namedInput(argument));
  }
  const auto op = [&](const char* suffix) { return Symbol::fromQualString("ipex::dynamic_" + name + suffix); };
  std::vector<Value*> inputs = run->inputs().vec();
  inputs[context] = graph->insert(op("_prepack"), arguments);
  replace(run, graph->insertNode(graph->create(op("_run"), inputs, run->outputs().size())));
}

bool quantize_recurrent_layers(Context& context) {
  if (!context.options.quantized_linears || !context.options.quantized_linears->rounds_inputs) return false;
  bool changed = false;
  for (const std::string name : {"lstm", "gru"}) {
    for_each(context.graph, "ipex::" + name + "_run", [&](Node* node) {
      const Node* prepack = node->inputs().back()->node();
      TORCH_CHECK(is_prepack(prepack),
                  "ipex.quantization: expected a model that was not optimised before, got one with ", describe(node),
                  ". Quantise the original.");
      if (is_in_one_of(node, context.options.quantized_linears->float_layers)) {
        return context.declined(node, "it is one of the layers to leave in float");
      }
      if (const auto reason = reason_against_int8(prepack)) return context.declined(node, *reason);
      context.applied(node, "runs in int8");
      quantize_layer(node, name);
      changed = true;
    });
  }
  return changed;
}

}  // namespace

Pass quantize_recurrent() { return {"quantize_recurrent", quantize_recurrent_layers, breaks(float_weights)}; }

}  // namespace ipex::passes
