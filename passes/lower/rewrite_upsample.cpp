// rewrite_upsample: images are made larger or smaller by kernels of our own, in the layout that is wanted afterwards.
//
//   before   %u = aten::upsample_bilinear2d(%x, %output_size, %align_corners, %scale_factors)
//            %y = ipex::restore_layout(%u, %l)
//   after    %y = ipex::upsample_bilinear2d(%x, %output_size, %align_corners, %scale_factors, %l)
//
// and nearest and bicubic. What becomes contiguous does so before it is made much larger. Runs last, so that other passes
// need to know one of each only. Declines factors of aten's plain overloads, of which each dimension has its own; those with
// antialiasing stay with aten: they see windows that grow with the factor.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/graph_walk.h"
#include "pattern/fusion_rule.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool take_over_layouts(Context& context) {
  static const OpName ops[] = {OpName("ipex::upsample_nearest2d"), OpName("ipex::upsample_bilinear2d"),
                               OpName("ipex::upsample_bicubic2d")};
  bool changed = false;
  for_each(context.graph, "ipex::restore_layout", [&](Node* restore) {
    Node* node = restore->input(0)->node();
    Value* is_channels_last = restore->input(1);
    const bool is_ours = is_of_any(ops, node);
    if (!is_ours || node->output()->uses().size() != 1 || node->owningBlock() != restore->owningBlock() ||
        !is_channels_last->node()->isBefore(node)) {
      return;
    }
    node->replaceInput(node->inputs().size() - 1, is_channels_last);
    context.applied(restore, "taken over by what makes the image larger");
    restore->output()->replaceAllUsesWith(node->output());
    restore->destroy();
    changed = true;
  });
  return changed;
}

bool run(Context& context) {
  const auto list = [](const char* op, const char* arguments) {
    return Spelling(c10::str("%y = aten::", op, "(", arguments, ")"));
  };
  const auto plain = [&](const char* op, const char* arguments) {
    return list(op, arguments)
        .declines_unless("scales_h", is_none, "it gives a factor for each dimension")
        .declines_unless("scales_w", is_none, "it gives a factor for each dimension");
  };
  const std::vector<std::string> nearest{"x", "size", "scales"}, linear{"x", "size", "align", "scales"},
      plain_nearest{"x", "size", "scales_h"}, plain_linear{"x", "size", "align", "scales_h"};
  static const std::vector<Spelling> spellings{
      list("upsample_nearest2d.vec", "%x, %size, %scales").becomes("ipex::upsample_nearest2d", nearest, {true}),
      list("upsample_bilinear2d.vec", "%x, %size, %align, %scales")
          .becomes("ipex::upsample_bilinear2d", linear, {true}),
      list("upsample_bicubic2d.vec", "%x, %size, %align, %scales").becomes("ipex::upsample_bicubic2d", linear, {true}),
      plain("upsample_nearest2d", "%x, %size, %scales_h, %scales_w")
          .becomes("ipex::upsample_nearest2d", plain_nearest, {true}),
      plain("upsample_bilinear2d", "%x, %size, %align, %scales_h, %scales_w")
          .becomes("ipex::upsample_bilinear2d", plain_linear, {true}),
      plain("upsample_bicubic2d", "%x, %size, %align, %scales_h, %scales_w")
          .becomes("ipex::upsample_bicubic2d", plain_linear, {true})};
  const bool changed = rewrite_spellings(context, spellings);
  return take_over_layouts(context) || changed;
}

}  // namespace

Pass rewrite_upsample() { return {"rewrite_upsample", run}; }

}  // namespace ipex::passes
