// release_residuals: a residual from outside is added after the convolution, which then stays in its stretch.
//
//   before   %y = ipex::convolution_run(%m, .., [%r], ..)    with the post-op radd; %m is channels-last, %r is not
//   after    %c = ipex::convolution_run(%m, .., [], ..)
//            %y = aten::add(%r, %c, 1)
//
// aten gives the sum the layout of its first operand, or of a larger one. So such a convolution is not a member, and %m was
// converted to what eager has, and back: in a block that widens the channels first, four times as much as the result. Now only
// the result is converted.
// Only where somebody sees the strides; else the convolution is a member anyway. Declines where it gives more channels than it reads,
// and where it has another operand.
#include "layout/release_residuals.h"

#include <torch/csrc/jit/ir/constants.h>

#include <map>

#include "anchor/anchor.h"

namespace ipex::passes {
namespace {

// The op of aten that a post-op with an operand is.
struct Step {
  c10::Symbol op;
  bool operand_first;
};

std::optional<Step> last_step(const Anchor& anchor) {
  static const std::map<std::string, Step> steps{{"add", {c10::aten::add, false}},
                                                 {"radd", {c10::aten::add, true}},
                                                 {"sub", {c10::aten::sub, false}},
                                                 {"rsub", {c10::aten::sub, true}}};
  const auto post_ops = anchor.post_ops();
  const auto found = post_ops.empty() ? steps.end() : steps.find(post_ops.back());
  return found == steps.end() ? std::nullopt : std::optional(found->second);
}

bool narrows(const Anchor& anchor) {
  const at::Tensor weight = torch::jit::toIValue(anchor.argument("weight"))->toTensor();
  return !anchor.is_transposed() && weight.size(1) >= anchor.output_channels();
}

bool is_held_by_its_residual(const Anchor& anchor, const Stretches& stretches) {
  const Block* block = anchor.run()->owningBlock();
  const Root root = stretches.root_of(anchor.input(), block);
  if (!root.value || root.spatial_rank != anchor.spatial_rank() || stretches.root_of(anchor.output(), block))
    return false;
  return last_step(anchor) && anchor.operands().size() == 1 && narrows(anchor) &&
         stretches.root_of(anchor.operands()[0], block) != root && !is_contiguous_constant(anchor.operands()[0]);
}

void release(const Anchor& anchor) {
  Node* run = anchor.run();
  Graph* graph = run->owningGraph();
  Value* residual = anchor.operands()[0];
  const Step step = *last_step(anchor);
  c10::List<std::string> rest;
  for (const std::string& post_op : anchor.post_ops()) rest.push_back(post_op);
  rest.pop_back();
  anchor.set_argument("post_ops", rest);
  const torch::jit::WithInsertPoint guard(run);
  run->replaceInput(2, graph->insertNode(graph->createList(c10::TensorType::get(), {}))->output());
  Value* one = graph->insertConstant(1);
  Value* first = step.operand_first ? residual : run->output();
  Value* second = step.operand_first ? run->output() : residual;
  Node* add = graph->create(step.op, {first, second, one});
  add->insertAfter(run);
  add->setSourceRange(run->sourceRange());
  run->output()->replaceAllUsesAfterNodeWith(add, add->output());
}

}  // namespace

bool release_residuals(Context& context, const Stretches& stretches) {
  bool changed = false;
  for (Value* member : stretches.members()) {
    for (const Use& use : std::vector<Use>(member->uses())) {
      const auto anchor = use.user->outputs().size() == 1 ? Anchor::producing(use.user->output()) : std::nullopt;
      if (!anchor || anchor->input() != member || !is_held_by_its_residual(*anchor, stretches)) continue;
      context.applied(anchor->run(), "adds its residual afterwards, and stays channels-last");
      release(*anchor);
      changed = true;
    }
  }
  return changed;
}

}  // namespace ipex::passes
