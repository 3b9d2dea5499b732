// rewrite_pooling: pools, and averages of channels-last images, are computed by our kernels.
//
//   before   %y = aten::max_pool2d(%x, %kernel_size, %stride, %padding, %dilation, %ceil_mode)
//   after    %y = ipex::max_pool2d(%x, %kernel_size, %stride, %padding, %dilation, %ceil_mode)
//
// and max_pool3d, avg_pool1d, avg_pool2d and avg_pool3d; adaptive_avg_pool2d and mean, of which the kernel averages whole images. Runs
// last, so that other passes need to know one of each only. The ops look at the layout that they get, and leave to aten what
// the kernels don't take. Declines averages in a graph where no image is channels-last, and means that are not of whole images.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/graph_walk.h"
#include "pattern/fusion_rule.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool has_images_channels_last(const std::shared_ptr<Graph>& graph) {
  bool found = false;
  for_each(graph, "ipex::to_channels_last", [&](Node*) { found = true; });
  return found;
}

bool are_of_images(const Value* dims) {
  const auto constant = torch::jit::toIValue(dims);
  if (!constant || !constant->isIntList()) return false;
  std::vector<int64_t> sorted = constant->toIntVector();
  std::sort(sorted.begin(), sorted.end());
  return sorted == std::vector<int64_t>{2, 3} || sorted == std::vector<int64_t>{-2, -1};
}

bool run(Context& context) {
  static const auto max_pool = [](const std::string& name) {
    return Spelling("%y = aten::" + name + "(%x, %kernel_size, %stride, %padding, %dilation, %ceil_mode)")
        .becomes("ipex::" + name, {"x", "kernel_size", "stride", "padding", "dilation", "ceil_mode"});
  };
  static const auto avg_pool = [](const std::string& name) {
    return Spelling("%y = aten::" + name +
                    "(%x, %kernel_size, %stride, %padding, %ceil_mode, %count_include_pad, %divisor_override)")
        .becomes("ipex::" + name,
                 {"x", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"});
  };
  static const Spelling avg_pool1d =
      Spelling("%y = aten::avg_pool1d(%x, %kernel_size, %stride, %padding, %ceil_mode, %count_include_pad)")
          .becomes("ipex::avg_pool1d", {"x", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"});
  static const std::vector<Spelling> pools{max_pool("max_pool2d"), max_pool("max_pool3d"), avg_pool("avg_pool2d"),
                                           avg_pool("avg_pool3d"), avg_pool1d};
  static const std::vector<Spelling> averages{
      Spelling("%y = aten::adaptive_avg_pool2d(%x, %output_size)")
          .becomes("ipex::adaptive_avg_pool2d", {"x", "output_size"}),
      Spelling("%y = aten::mean.dim(%x, %dim, %keepdim, %dtype)")
          .declines_unless("dim", are_of_images, "it does not average whole images")
          .declines_unless("dtype", is_none, "it gives a dtype of its own")
          .becomes("ipex::mean", {"x", "dim", "keepdim"})};
  const bool changed = rewrite_spellings(context, pools);
  if (has_images_channels_last(context.graph)) return rewrite_spellings(context, averages) || changed;
  for (const char* kind : {"aten::adaptive_avg_pool2d", "aten::mean.dim"}) {
    for_each(context.graph, kind, [&](Node* node) { context.declined(node, "no image is channels-last"); });
  }
  return changed;
}

}  // namespace

Pass rewrite_pooling() { return {"rewrite_pooling", run}; }

}  // namespace ipex::passes
