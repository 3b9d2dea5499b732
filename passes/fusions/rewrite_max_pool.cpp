// rewrite_max_pool: a max_pool2d among packed convolutions is computed by our kernel for channels-last images.
//
//   before   %y = aten::max_pool2d(%x, %kernel_size, %stride, %padding, %dilation, %ceil_mode)
//   after    %y = ipex::max_pool2d(%x, %kernel_size, %stride, %padding, %dilation, %ceil_mode)
//
// Runs last, so that other passes need to know one max_pool2d only. The op looks at the layout that it gets, and leaves
// any other to aten. Declines in a graph where no image is channels-last.
#include "graph_walk.h"
#include "passes.h"
#include "spelling.h"

namespace ipex::passes {
namespace {

bool has_images_channels_last(const std::shared_ptr<Graph>& graph) {
  bool found = false;
  for_each_node(graph->block(), [&](Node* node) { found |= kind_of(node) == "ipex::to_channels_last"; });
  return found;
}

bool run(const std::shared_ptr<Graph>& graph, Recorder& recorder) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::max_pool2d(%x, %kernel_size, %stride, %padding, %dilation, %ceil_mode)")
          .becomes("ipex::max_pool2d", {"x", "kernel_size", "stride", "padding", "dilation", "ceil_mode"})};
  if (has_images_channels_last(graph)) return rewrite_spellings(graph, recorder, spellings);
  for_each(graph, "aten::max_pool2d", [&](Node* node) { recorder.declined(node, "no image is channels-last"); });
  return false;
}

}  // namespace

Pass rewrite_max_pool() { return {"rewrite_max_pool", run}; }

}  // namespace ipex::passes
