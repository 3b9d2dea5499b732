// rename_concatenations: torch.concat and torch.concatenate are torch.cat.
//
//   before   %y = aten::concat(%tensors, %dim)
//   after    %y = aten::cat(%tensors, %dim)
//
// torch gives other ops with several names one name when it traces; these it leaves. No pass knows them by theirs: a
// convolution before one would lose its layout, and alias analysis believes that they may keep what they read.
#include "passes.h"
#include "spelling.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::concat(%tensors, %dim)").becomes("aten::cat", {"tensors", "dim"}),
      Spelling("%y = aten::concatenate(%tensors, %dim)").becomes("aten::cat", {"tensors", "dim"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rename_concatenations() { return {"rename_concatenations", run}; }

}  // namespace ipex::passes
