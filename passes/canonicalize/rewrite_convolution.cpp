// rewrite_convolution: tracing records every convolution as aten::_convolution; give it back its own name.
//
//   before   %y = aten::_convolution(%x, %w, %b, %stride, %padding, %dilation, %transposed=0, .., %groups, ..)
//   after    %y = aten::conv2d(%x, %w, %b, %stride, %padding, %dilation, %groups)
//
// Declines when it is transposed, when an argument that decides this is no constant, or when it is not 2-d.
#include <torch/csrc/jit/ir/constants.h>

#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

std::optional<std::string> reason_against(const Node* node) {
  const auto transposed = torch::jit::toIValue(node->namedInput("transposed"));
  if (!transposed || transposed->toBool()) return "it is transposed: no prepacked form yet";
  const auto stride = torch::jit::toIValue(node->namedInput("stride"));
  if (!stride || stride->toIntVector().size() != 2) return "it is not 2-d: no prepacked form yet";
  return std::nullopt;
}

bool run(const std::shared_ptr<Graph>& graph, Recorder& recorder) {
  bool changed = false;
  for_each(graph, "aten::_convolution", [&](Node* node) {
    if (const auto reason = reason_against(node)) return recorder.declined(node, *reason);
    const torch::jit::WithInsertPoint guard(node);
    Value* y = graph->insert(
        c10::aten::conv2d,
        {node->namedInput("input"), node->namedInput("weight"), node->namedInput("bias"), node->namedInput("stride"),
         node->namedInput("padding"), node->namedInput("dilation"), node->namedInput("groups")});
    replace(node, y->node());
    changed = true;
  });
  return changed;
}

}  // namespace

Pass rewrite_convolution() { return {"rewrite_convolution", run}; }

}  // namespace ipex::passes
