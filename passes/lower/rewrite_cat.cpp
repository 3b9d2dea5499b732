// rewrite_cat: tensors are joined in memory that is kept between calls.
//
//   before   %y = aten::cat(%tensors, %dim)
//   after    %y = ipex::cat(%tensors, %dim)
//
// Runs last, so that other passes need to know one of the two only.
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::cat(%tensors, %dim)").becomes("ipex::cat", {"tensors", "dim"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rewrite_cat() { return {"rewrite_cat", run}; }

}  // namespace ipex::passes
