// prepack_conv2d: split a convolution with a constant weight into packing, done once, and running.
//
//   before   %y = aten::conv2d(%x, %w, %b, %stride, %padding, %dilation, %groups)
//   after    %context = ipex::conv2d_prepack(%w, %b, %stride, %padding, %dilation, %groups, %post_ops=[], ..)
//            %y = ipex::conv2d_run(%x, %context, %operands=[], %eager_layout=1)
//
// Declines when an argument other than %x is no constant, when the weight is not float32, or when the padding is given
// as a string.
#include <torch/csrc/jit/ir/constants.h>

#include "anchor.h"
#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

std::optional<std::string> reason_against(const Node* node) {
  for (const char* name : {"stride", "padding", "dilation", "groups"}) {
    const auto value = torch::jit::toIValue(node->namedInput(name));
    if (!value) return std::string("its ") + name + " is not a constant";
    if (value->isString()) return "its padding is '" + value->toStringRef() + "': no prepacked form yet";
  }
  return reason_against_packing(node, 4);
}

bool run(const std::shared_ptr<Graph>& graph, Recorder& recorder) {
  bool changed = false;
  for_each(graph, "aten::conv2d", [&](Node* node) {
    if (const auto reason = reason_against(node)) return recorder.declined(node, *reason);
    recorder.applied(node, "prepacked");
    replace(node, Anchor::insert_before(node, "conv2d", node->inputs().slice(1), node->input(0)).run());
    changed = true;
  });
  return changed;
}

}  // namespace

Pass prepack_conv2d() { return {"prepack_conv2d", run}; }

}  // namespace ipex::passes
