// lay_out_upsample: an image that is made larger is written in the layout that is wanted afterwards.
//
//   before   %u = ipex::upsample_bilinear2d(%x, %output_size, %align_corners, %scale_factors, %keeps_layout)
//            %y = ipex::restore_layout(%u, %l)
//   after    %y = ipex::upsample_bilinear2d(%x, %output_size, %align_corners, %scale_factors, %l)
//
// and nearest and bicubic: what becomes contiguous does so before it is much larger.
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  static const OpName ops[] = {OpName("ipex::upsample_nearest2d"), OpName("ipex::upsample_bilinear2d"),
                               OpName("ipex::upsample_bicubic2d")};
  bool changed = false;
  for_each(context.graph, "ipex::restore_layout", [&](Node* restore) {
    Node* node = restore->input(0)->node();
    Value* is_channels_last = restore->input(1);
    const bool is_ours = is_of_any(ops, node);
    if (!is_ours || node->output()->uses().size() != 1 || !is_channels_last->node()->isBefore(node)) return;
    node->replaceInput(node->inputs().size() - 1, is_channels_last);
    context.applied(restore, "taken over by what makes the image larger");
    restore->output()->replaceAllUsesWith(node->output());
    restore->destroy();
    changed = true;
  });
  return changed;
}

}  // namespace

Pass lay_out_upsample() { return {"lay_out_upsample", run, needs(ops_lowered)}; }

}  // namespace ipex::passes
