// rewrite_pooling: pooling among packed convolutions is computed by our kernels for channels-last images.
//
//   before   %y = aten::max_pool2d(%x, %kernel_size, %stride, %padding, %dilation, %ceil_mode)
//   after    %y = ipex::max_pool2d(%x, %kernel_size, %stride, %padding, %dilation, %ceil_mode)
//
// and adaptive_avg_pool2d, of which the kernel averages whole images. Runs last, so that other passes need to know one of
// each only. The ops look at the layout that they get, and leave any other to aten. Declines in a graph where no image is
// channels-last.
#include "graph_walk.h"
#include "passes.h"
#include "spelling.h"

namespace ipex::passes {
namespace {

bool has_images_channels_last(const std::shared_ptr<Graph>& graph) {
  bool found = false;
  for_each(graph, "ipex::to_channels_last", [&](Node*) { found = true; });
  return found;
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::max_pool2d(%x, %kernel_size, %stride, %padding, %dilation, %ceil_mode)")
          .becomes("ipex::max_pool2d", {"x", "kernel_size", "stride", "padding", "dilation", "ceil_mode"}),
      Spelling("%y = aten::adaptive_avg_pool2d(%x, %output_size)")
          .becomes("ipex::adaptive_avg_pool2d", {"x", "output_size"})};
  if (has_images_channels_last(context.graph)) return rewrite_spellings(context, spellings);
  for (const char* kind : {"aten::max_pool2d", "aten::adaptive_avg_pool2d"}) {
    for_each(context.graph, kind, [&](Node* node) { context.declined(node, "no image is channels-last"); });
  }
  return false;
}

}  // namespace

Pass rewrite_pooling() { return {"rewrite_pooling", run}; }

}  // namespace ipex::passes
