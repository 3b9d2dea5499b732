#include "finalize/pin_math_mode.h"

#include <torch/csrc/jit/ir/constants.h>

#include "anchor.h"
#include "graph_walk.h"

namespace ipex::passes {
namespace {

// The node that makes the context of a run op. Null where an earlier optimisation packed it.
Node* prepack_of(const Node* run) {
  for (const Value* input : run->inputs()) {
    if (kind_of(input->node()).ends_with("_prepack")) return const_cast<Node*>(input->node());
  }
  return nullptr;
}

bool has_16_bit_weight(const Node* prepack) {
  return prepack->hasNamedInput("weight") &&
         torch::jit::toIValue(prepack->namedInput("weight"))->toTensor().scalar_type() != at::kFloat;
}

}  // namespace

void pin_math_mode(const std::shared_ptr<Graph>& graph, FP32MathMode mode, Report& report) {
  for_each_node(graph->block(), [&](Node* node) {
    const auto record = [&](bool applied, const std::string& reason) {
      report.push_back({"pin_math_mode", describe(node), applied, reason});
    };
    if (kind_of(node) == "ipex::attention") {
      record(false, "it computes in float32 in every mode");
    } else if (kind_of(node).starts_with("ipex::") && kind_of(node).ends_with("_run")) {
      Node* prepack = prepack_of(node);
      TORCH_CHECK(prepack,
                  "ipex.jit_optimize: expected a model that was not optimised before, to give it a math mode, ",
                  "got one with ", describe(node), ". Optimise the original with fp32_math_mode.");
      if (has_16_bit_weight(prepack)) return record(false, "its weight has 16 bits");
      set_argument(prepack, "math_mode", static_cast<int64_t>(mode));
      record(true, to_string(mode));
    }
  });
}

}  // namespace ipex::passes
