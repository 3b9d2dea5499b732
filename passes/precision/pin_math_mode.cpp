// pin_math_mode: where the user asked for a math mode, every packed op computes in it for good, instead of following the
// process.
//
//   before   %context = ipex::linear_prepack(.., %math_mode=None)
//   after    %context = ipex::linear_prepack(.., %math_mode=2)
//
// Reports each of them. Throws when an op was packed by an earlier
// optimisation: its mode is decided.
#include <torch/csrc/jit/ir/constants.h>

#include "anchor/anchor.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool has_16_bit_weight(const Node* prepack) {
  return prepack->hasNamedInput("weight") &&
         torch::jit::toIValue(prepack->namedInput("weight"))->toTensor().scalar_type() != at::kFloat;
}

bool run(Context& context) {
  if (!context.options.fp32_math_mode) return false;
  const FP32MathMode mode = *context.options.fp32_math_mode;
  bool changed = false;
  for_each_node(context.graph->block(), [&](Node* node) {
    if (!is_run(node)) return;
    Node* prepack = node->input(static_cast<size_t>(op_of(node)->packed->context))->node();
    TORCH_CHECK(is_prepack(prepack),
                "ipex.jit_optimize: expected a model that was not optimised before, to give it a math mode, ",
                "got one with ", describe(node), ". Optimise the original with fp32_math_mode.");
    if (!prepack->hasNamedInput("math_mode")) return context.declined(node, "its weight came as codes");
    if (has_16_bit_weight(prepack)) return context.declined(node, "its weight has 16 bits");
    context.applied(node, to_string(mode));
    set_argument(prepack, "math_mode", static_cast<int64_t>(mode));
    changed = true;
  });
  return changed;
}

}  // namespace

Pass pin_math_mode() { return {"pin_math_mode", run, needs(float_weights, layers_apart)}; }

}  // namespace ipex::passes
