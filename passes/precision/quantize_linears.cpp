// quantize_linears: where the user asked for it, weights of linears become integers, or short floats.
//
//   before   %context = ipex::linear_prepack(%w, %b, %post_ops, ..)
//            %y = ipex::linear_run(%x, %context, %operands, %eager_layout)
//   after    %context = ipex::dynamic_linear_prepack(%w, %b, %post_ops)
//            %y = ipex::dynamic_linear_run(%x, %context, %operands, %eager_layout)
//       or   ipex::weight_only_linear_prepack(%w, %b, %post_ops, %format, %group_size, %symmetric) and its run op
//
// Post-ops come along. Declines the layers that the user
// wants in float; a weight that is not float32 or not finite, or so small that nothing is gained; a batch_norm that was
// folded, which other ranks of input take out again; and rows whose sums don't fit 32 bits.
// Throws when a linear was packed by an earlier optimisation.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include "anchor/anchor.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

constexpr int64_t least_elements = 1 << 14, most_summed_in_32_bits = 1 << 16;

std::optional<std::string> reason_against(const Anchor& linear, const QuantizedLinears& wanted) {
  if (linear.dtype() != at::kFloat) return "its weight has 16 bits";
  const at::Tensor weight = toIValue(linear.argument("weight"))->toTensor();
  if (!toIValue(linear.argument("folded_scale"))->isNone()) return "a batch_norm was folded into it";
  if (weight.numel() < least_elements) return c10::str("its weight of ", weight.sizes(), " is too small to gain");
  if (!weight.isfinite().all().item<bool>()) return "its weight is not finite";
  if (wanted.rounds_inputs && weight.size(1) > most_summed_in_32_bits) {
    return c10::str("its sums of ", weight.size(1), " products don't fit 32 bits");
  }
  return std::nullopt;
}

void quantize(const Anchor& linear, const QuantizedLinears& wanted) {
  Node* run = linear.run();
  Graph* graph = run->owningGraph();
  const torch::jit::WithInsertPoint guard(run);
  const std::string op = wanted.rounds_inputs ? "ipex::dynamic_linear" : "ipex::weight_only_linear";
  std::vector<torch::jit::NamedValue> arguments{linear.argument("weight"), linear.argument("bias"),
                                                linear.argument("post_ops")};
  if (!wanted.rounds_inputs) {
    arguments.emplace_back(graph->insertConstant(wanted.format));
    arguments.emplace_back(graph->insertConstant(wanted.group_size));
    arguments.emplace_back(graph->insertConstant(wanted.symmetric));
  }
  Value* context = graph->insert(Symbol::fromQualString(op + "_prepack"), arguments);
  const auto inputs = run->inputs();
  replace(run, graph->insertNode(
                   graph->create(Symbol::fromQualString(op + "_run"), {inputs[0], context, inputs[2], inputs[3]})));
}

bool run(Context& context) {
  if (!context.options.quantized_linears) return false;
  const QuantizedLinears& wanted = *context.options.quantized_linears;
  const std::string what = wanted.rounds_inputs ? "runs in int8"
                           : wanted.group_size == 0
                               ? c10::str("its weight is ", wanted.format)
                               : c10::str("its weight is ", wanted.format, " in groups of ", wanted.group_size);
  bool changed = false;
  for_each(context.graph, "ipex::linear_run", [&](Node* node) {
    const auto linear = Anchor::producing(node->output());
    TORCH_CHECK(linear, "ipex.quantization: expected a model that was not optimised before, got one with ",
                describe(node), ". Quantise the original.");
    if (is_in_one_of(node, wanted.float_layers)) {
      return context.declined(node, "it is one of the layers to leave in float");
    }
    if (const auto reason = reason_against(*linear, wanted)) return context.declined(node, *reason);
    context.applied(node, what);
    quantize(*linear, wanted);
    changed = true;
  });
  return changed;
}

}  // namespace

Pass quantize_linears() { return {"quantize_linears", run, needs(layers_apart) + breaks(float_weights)}; }

}  // namespace ipex::passes
