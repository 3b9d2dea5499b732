// fuse_batch_norm: a batch_norm that no packed op could take runs in one pass over memory, with the relu after it.
//
//   before   %n = aten::batch_norm(%x, %weight, %bias, %mean, %var, %training=0, ..)
//            %y = aten::relu(%n)
//   after    %y = ipex::batch_norm(%x, %weight, %bias, %mean, %var, %eps, %relu=1, %post_ops=[])
//
// So in DenseNet, where it follows a concatenation. Without a relu it is still faster than aten's, and the fusions append
// other activations to its post-ops.
// Declines when training is on or no constant, and when the statistics are no constants: then somebody may train them.
#include <torch/csrc/jit/ir/constants.h>

#include "ir/constants.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool is_constant(const Value* value) { return torch::jit::toIValue(value).has_value(); }

Spelling batch_norm(bool relu) {
  const std::string text = "%n = aten::batch_norm(%x, %weight, %bias, %mean, %var, %training, %momentum, %eps, %cudnn)";
  return Spelling(relu ? text + "\n%y = aten::relu(%n)" : text)
      .declines_unless("training", is_false, "it is not in eval mode")
      .declines_unless("mean", is_constant, "its running_mean is not a constant")
      .declines_unless("var", is_constant, "its running_var is not a constant")
      .becomes("ipex::batch_norm", {"x", "weight", "bias", "mean", "var", "eps"}, {relu, c10::List<std::string>()});
}

bool run(Context& context) {
  bool changed = rewrite_spellings(context, {batch_norm(/*relu=*/true)});
  changed |= rewrite_spellings(context, {batch_norm(/*relu=*/false)});
  return changed;
}

}  // namespace

Pass fuse_batch_norm() { return {"fuse_batch_norm", run, needs(anchors_prepacked)}; }

}  // namespace ipex::passes
