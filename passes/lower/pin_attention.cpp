// pin_attention: attention computes in the precision that the user asked for, instead of following the process.
//
//   before   %y = ipex::scaled_dot_product_attention(%q, .., %gqa)
//   after    %y = ipex::scaled_dot_product_attention(%q, .., %gqa, %math_mode)
//
// The math mode asked for; in a model that computes in bfloat16 or int8, BF32, which rounds as little as its layers do. The
// same for ipex::attention. On CPUs without bfloat16 products it computes in float32 in every mode.
#include "anchor/anchor.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

std::optional<FP32MathMode> mode_of(const Options& options) {
  if (options.fp32_math_mode) return options.fp32_math_mode;
  const bool rounds = options.dtype == at::kBFloat16 || (options.quantization && !options.quantization->observes);
  return rounds ? std::optional(FP32MathMode::BF32) : std::nullopt;
}

bool run(Context& context) {
  const auto mode = mode_of(context.options);
  if (!mode) return false;
  bool changed = false;
  for (const char* op : {"ipex::attention", "ipex::scaled_dot_product_attention", "ipex::attention_in_a_grid"}) {
    for_each(context.graph, op, [&](Node* node) {
      set_argument(node, "math_mode", static_cast<int64_t>(*mode));
      context.applied(node, to_string(*mode));
      changed = true;
    });
  }
  return changed;
}

}  // namespace

Pass pin_attention() { return {"pin_attention", run, needs(ops_lowered, plain_attention)}; }

}  // namespace ipex::passes
