#include "layout/skip_copies.h"

#include "anchor/anchor.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "layout/loosen_views.h"

namespace ipex::passes {
namespace {

bool reads_images(const Use& use) {
  static const OpName pools[] = {OpName("aten::max_pool2d"), OpName("aten::avg_pool2d"),
                                 OpName("aten::adaptive_avg_pool2d")};
  if (reads_only_sizes(use)) return true;
  if (use.offset != 0 || use.user->outputs().size() != 1) return false;
  const auto anchor = Anchor::producing(use.user->output());
  return (anchor && anchor->spatial_rank() > 0) || is_of_any(pools, use.user);
}

}  // namespace

bool skip_copies(Context& context, const Stretches& stretches) {
  static const OpName contiguous("aten::contiguous");
  bool changed = false;
  for (Value* member : stretches.members()) {
    for (const Use& use : std::vector<Use>(member->uses())) {
      Node* copy = use.user;
      if (!contiguous.is_of(copy) || copy->owningBlock() != member->node()->owningBlock() ||
          !stretches.is_unseen(copy) || stretches.is_overwritten(copy->output())) {
        continue;
      }
      context.applied(copy, "removed: nobody sees its strides");
      copy->output()->replaceAllUsesWith(member);
      copy->destroy();
      changed = true;
    }
  }
  return changed;
}

bool skip_copies_for_images(Context& context) {
  const OverwrittenValues overwritten(context.graph);
  const StrideReaders readers(context.graph);
  bool changed = false;
  std::vector<Value*> results;
  for_each(context.graph, "aten::contiguous", [&](Node* node) {
    Value *image = node->input(0), *made = node->output();
    const bool is_plain = number(node->input(1)) == static_cast<int>(at::MemoryFormat::Contiguous);
    if (!is_plain || readers.see(made) || overwritten.contain(image)) return;
    if (!std::all_of(made->uses().begin(), made->uses().end(), reads_images)) return;
    context.applied(node, "skipped: convolutions and pools read any layout");
    for (const Use& use : made->uses()) {
      for (Value* result : use.user->outputs()) results.push_back(result);
    }
    made->replaceAllUsesWith(image);
    node->destroy();
    changed = true;
  });
  loosen_views(results);
  return changed;
}

}  // namespace ipex::passes
