// fuse_cat_batch_norm: tensors are joined along their channels and normalised in one pass over memory.
//
//   before   %c = aten::cat(%tensors, %dimension=1)
//            %y = ipex::batch_norm(%c, %weight, %bias, %mean, %var, %eps, %relu, %post_ops=[])
//   after    %y = ipex::cat_batch_norm(%tensors, %weight, %bias, %mean, %var, %eps, %relu)
//
// So in DenseNet, each of whose layers begins with this. What the kernel does not take is joined first when it runs.
// Declines when another dimension is joined, when the concatenation has another reader, and when somebody else has the
// list: it might grow before the batch_norm. Nor where an activation other than relu follows, which the batch_norm takes.
#include <torch/csrc/jit/ir/constants.h>

#include "ir/lists.h"
#include "ops/op_table.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool is_list_of_its_own(const Value* list) { return own_elements_of(list).has_value(); }

bool is_no_list(const Value* post_ops) {
  const auto texts = torch::jit::toIValue(post_ops);
  return texts && texts->toListRef().empty();
}

// Then the batch_norm alone takes it.
bool has_no_activation(const Value* y) {
  return y->uses().size() != 1 || !has_trait(y->uses()[0].user, trait::elementwise);
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%c = aten::cat(%tensors, %dimension)\n"
               "%y = ipex::batch_norm(%c, %weight, %bias, %mean, %var, %eps, %relu, %post_ops)")
          .declines_unless("dimension", equals(1), "it does not join channels")
          .declines_unless("post_ops", is_no_list, "it has an activation that is no relu")
          .declines_unless("y", has_no_activation, "an activation that is no relu follows")
          .declines_unless("tensors", is_list_of_its_own, "its list may have other readers")
          .becomes("ipex::cat_batch_norm", {"tensors", "weight", "bias", "mean", "var", "eps", "relu"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass fuse_cat_batch_norm() {
  return {"fuse_cat_batch_norm", run, needs(lists_are_values, aten_names, one_name_per_op)};
}

}  // namespace ipex::passes
