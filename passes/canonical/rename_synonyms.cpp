// rename_synonyms: torch.concat and torch.concatenate are torch.cat, swapaxes and swapdims are transpose.
//
//   before   %y = aten::concat(%tensors, %dim)     %z = aten::swapaxes(%x, %a, %b)
//   after    %y = aten::cat(%tensors, %dim)        %z = aten::transpose(%x, %a, %b)
//
// torch gives other ops with several names one name when it traces; these it leaves. No pass knows them by theirs: a
// convolution before one would lose its layout, and alias analysis believes that a concatenation may keep what it reads.
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::concat(%tensors, %dim)").becomes("aten::cat", {"tensors", "dim"}),
      Spelling("%y = aten::concatenate(%tensors, %dim)").becomes("aten::cat", {"tensors", "dim"}),
      Spelling("%y = aten::swapaxes(%x, %a, %b)").becomes("aten::transpose", {"x", "a", "b"}),
      Spelling("%y = aten::swapdims(%x, %a, %b)").becomes("aten::transpose", {"x", "a", "b"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rename_synonyms() { return {"rename_synonyms", run, establishes(one_name_per_op)}; }

}  // namespace ipex::passes
