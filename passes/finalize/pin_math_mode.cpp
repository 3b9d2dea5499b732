#include "finalize/pin_math_mode.h"

#include <set>

#include "anchor.h"
#include "graph_walk.h"

namespace ipex::passes {
namespace {

bool has_float32_kernels_only(const Node* node) {
  static const std::set<std::string> kinds{"ipex::lstm_run", "ipex::gru_run", "ipex::attention"};
  return kinds.count(kind_of(node)) > 0;
}

}  // namespace

void pin_math_mode(const std::shared_ptr<Graph>& graph, FP32MathMode mode, Report& report) {
  for_each_node(graph->block(), [&](Node* node) {
    const auto record = [&](bool applied, const std::string& reason) {
      report.push_back({"pin_math_mode", describe(node), applied, reason});
    };
    if (has_float32_kernels_only(node)) {
      record(false, "it computes in float32 in every mode");
    } else if (kind_of(node).starts_with("ipex::") && kind_of(node).ends_with("_run")) {
      const auto anchor = Anchor::producing(node->output());
      TORCH_CHECK(anchor, "ipex.jit_optimize: expected a model that was not optimised before, to give it a math mode, ",
                  "got one with ", describe(node), ". Optimise the original with fp32_math_mode.");
      if (anchor->has_weight() && anchor->dtype() != at::kFloat) return record(false, "its weight has 16 bits");
      anchor->set_argument("math_mode", static_cast<int64_t>(mode));
      record(true, to_string(mode));
    }
  });
}

}  // namespace ipex::passes
