// fuse_elementwise: elementwise ops that follow one another, and that no packed op took, become one op, which reads and
// writes memory once.
//
//   before   %s = aten::sigmoid(%g)
//            %m = aten::mul(%x, %s)
//            %y = aten::add(%m, %r, %alpha=1)
//   after    %y = ipex::elementwise([%g, %x, %r], ["sigmoid 0", "mul 1 3", "add 4 2"])
//
// A group is a tree of ops that ends in the one whose result others need; values in between have no readers outside. Then it
// takes in its neighbours, as an op with several results: what a cell of a recurrent model hands on, or a sum that is read
// again as a residual. Nodes are moved for that, so not past writes, nor past packed ops, which would hold memory for longer.
//
//   before   %e = aten::exp(%d)    %n = aten::mul(%e, %x)    %m = aten::mul(%e, %g)
//   after    %list = ipex::elementwise([%d, %x, %g], ["exp 0", "mul 3 1", "mul 3 2"], [4, 5])
//            %n, %m = prim::ListUnpack(%list)
//
// The steps are data: post-ops, as packed ops have them, with the numbers of what they read (runtime/ops/elementwise/steps.h).
// elementwise_steps.cpp says which ops can be steps. Bools, which comparisons give, stay inside: a group ends in floats.
//
// A norm that is expanded to the shape of what it was taken of, as in F.normalize, is read as it is before: a step broadcasts
// by itself.
//
// Declines an op that stands alone, unless ours is the faster one; what may
// be integers (arithmetic on sizes is traced as tensors too); and leaves out what memory is overwritten after.
#include <algorithm>
#include <unordered_set>

#include "chains/elementwise_group.h"
#include "chains/elementwise_sums.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// From the end, so that a group is as large as it can be.
bool run_in(Context& context, ElementwiseSteps& steps, Block* block) {
  std::vector<Node*> nodes(block->nodes().begin(), block->nodes().end());
  std::unordered_set<const Node*> taken;
  bool changed = false;
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    Node* node = *it;
    if (taken.count(node)) continue;
    for (Block* inner : node->blocks()) changed |= run_in(context, steps, inner);
    const ElementwiseStep* step = steps.of(node);
    if (!step) continue;
    if (step->gives_bools) {
      context.declined(node, "others read its bools");
      continue;
    }
    ElementwiseGroup group(steps, node);
    if (!is_only_summed(node->output())) group.share();
    if (!group.is_worth_it()) {
      context.declined(node, "no elementwise op stands before it that it could share a pass over memory with");
      continue;
    }
    taken.insert(group.nodes().begin(), group.nodes().end());
    group.rewrite(context);
    changed = true;
  }
  return changed;
}

// Whether `value` is a norm of `x` that keeps its dimensions, or such a norm and no less than a number. Then it has the dtype of
// x, and can be expanded to it: of another tensor, neither is known. One without dimensions doesn't promote unless expanded.
bool is_norm_of(const Value* value, const Value* x, const Node* reader) {
  static const OpName clamp_min("aten::clamp_min"), vector_norm("aten::linalg_vector_norm"),
      norm("aten::norm.ScalarOpt_dim");
  const Node* node = value->node();
  if (clamp_min.is_of(node)) node = node->input(0)->node();
  if ((!vector_norm.is_of(node) && !norm.is_of(node)) || node->input(0) != x || !can_wait(node, reader)) {
    return false;
  }
  return is_true(node->namedInput("keepdim")) && (norm.is_of(node) || node->namedInput("dtype")->mustBeNone());
}

// Arithmetic reads such a norm itself in place of `expand_as` of its other operand. The strides of its result follow from the
// same numbers.
bool remove_expansions(Block* block) {
  static const OpName expand_as("aten::expand_as");
  static const OpName arithmetic[] = {OpName("aten::add.Tensor"), OpName("aten::sub.Tensor"),
                                      OpName("aten::mul.Tensor"), OpName("aten::div.Tensor")};
  bool changed = false;
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks()) changed |= remove_expansions(inner);
    if (!is_of_any(arithmetic, node)) continue;
    Node* expansion = node->input(1)->node();
    if (!expand_as.is_of(expansion) || expansion->input(1) != node->input(0) ||
        !is_norm_of(expansion->input(0), node->input(0), node)) {
      continue;
    }
    node->replaceInput(1, expansion->input(0));
    if (!expansion->output()->hasUses()) expansion->destroy();
    changed = true;
  }
  return changed;
}

bool run(Context& context) {
  const bool changed = remove_expansions(context.graph->block());
  ElementwiseSteps steps(context.graph);
  return run_in(context, steps, context.graph->block()) || changed;
}

}  // namespace

Pass fuse_elementwise() { return {"fuse_elementwise", run, breaks(plain_arithmetic)}; }

}  // namespace ipex::passes
