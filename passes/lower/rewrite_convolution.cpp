// rewrite_convolution: a convolution whose weight is computed may have a kernel that needs no packed one.
//
//   before   %y = aten::_convolution(%x, %weight, %bias, .., %transposed=0, .., %groups, ..)
//   after    %y = ipex::unpacked_convolution(%x, %weight, %bias, %stride, %padding, %dilation, %groups, %of_batches=1)
//
// and aten::conv2d. Runs last, so that other passes need to know aten's names only. The op looks at what it gets when it runs.
// Declines transposed ones. Those with constant weights that are left have a dtype or a geometry that no kernel takes.
#include <torch/csrc/jit/ir/constants.h>

#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  bool changed = false;
  const auto rewrite = [&](Node* node, bool of_batches) {
    if (torch::jit::toIValue(node->namedInput("weight"))) return;
    if (of_batches) {
      const auto transposed = torch::jit::toIValue(node->namedInput("transposed"));
      if (!transposed || transposed->toBool()) return context.declined(node, "it is transposed");
    }
    const torch::jit::WithInsertPoint guard(node);
    std::vector<torch::jit::NamedValue> inputs;
    for (const char* name : {"input", "weight", "bias", "stride", "padding", "dilation", "groups"}) {
      inputs.emplace_back(node->namedInput(name));
    }
    inputs.emplace_back(of_batches);
    context.applied(node, "became ipex::unpacked_convolution");
    replace(node, context.graph->insert(Symbol::fromQualString("ipex::unpacked_convolution"), inputs)->node());
    changed = true;
  };
  for_each(context.graph, "aten::_convolution", [&](Node* node) { rewrite(node, true); });
  for_each(context.graph, "aten::conv2d", [&](Node* node) { rewrite(node, false); });
  return changed;
}

}  // namespace

Pass rewrite_convolution() { return {"rewrite_convolution", run}; }

}  // namespace ipex::passes
