// rewrite_group_norm: group_norm and instance_norm run on a kernel of ours, which also applies what follows them.
//
//   before   %y = aten::group_norm(%x, %groups, %weight, %bias, %eps, %cudnn)
//   after    %y = ipex::group_norm(%x, %groups, %weight, %bias, %eps, %post_ops=[], %eager_layout=1)
//
//   before   %y = aten::instance_norm(%x, %weight, %bias, %mean=None, %var=None, %use_input_stats=1, ..)
//   after    %y = ipex::instance_norm(%x, %weight, %bias, %eps, %post_ops=[], %eager_layout=1)
//
// and aten::native_group_norm, where nobody reads the statistics that it also gives.
// Declines an instance_norm that reads or updates running statistics. Runs before the fusions, which append post-ops, and
// before keep_channels_last, whose stretches go on through it.
#include <torch/csrc/jit/ir/constants.h>

#include "ir/graph_walk.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool is_true(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isBool() && constant->toBool();
}

bool is_none(const Value* value) { return value->mustBeNone(); }

c10::List<std::string> no_post_ops() { return c10::List<std::string>(); }

bool rewrite_native(Context& context) {
  bool changed = false;
  for_each(context.graph, "aten::native_group_norm", [&](Node* node) {
    if (node->output(1)->hasUses() || node->output(2)->hasUses()) {
      return context.declined(node, "its statistics are read");
    }
    context.applied(node, "became ipex::native_group_norm");
    const torch::jit::WithInsertPoint guard(node);
    std::vector<Value*> arguments = node->inputs().vec();
    arguments.push_back(context.graph->insertConstant(no_post_ops()));
    Node* made =
        context.graph->insertNode(context.graph->create(Symbol::fromQualString("ipex::native_group_norm"), arguments));
    made->setSourceRange(node->sourceRange());
    made->setScope(node->scope());
    made->output()->copyMetadata(node->output(0));
    node->output(0)->replaceAllUsesWith(made->output());
    node->destroy();
    changed = true;
  });
  return changed;
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::group_norm(%x, %groups, %weight, %bias, %eps, %cudnn)")
          .becomes("ipex::group_norm", {"x", "groups", "weight", "bias", "eps"}, {no_post_ops(), true}),
      Spelling("%y = aten::instance_norm(%x, %weight, %bias, %mean, %var, %use_input_stats, %momentum, %eps, %cudnn)")
          .declines_unless("use_input_stats", is_true, "it reads running statistics")
          .declines_unless("mean", is_none, "it updates running statistics")
          .declines_unless("var", is_none, "it updates running statistics")
          .becomes("ipex::instance_norm", {"x", "weight", "bias", "eps"}, {no_post_ops(), true})};
  const bool changed = rewrite_native(context);
  return rewrite_spellings(context, spellings) || changed;
}

}  // namespace

Pass rewrite_group_norm() { return {"rewrite_group_norm", run}; }

}  // namespace ipex::passes
