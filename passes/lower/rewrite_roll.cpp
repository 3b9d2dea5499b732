// rewrite_roll: what is rolled along several dimensions, as windows that shift are, is copied once.
//
//   before   %y = aten::roll(%x, %shifts, %dims)
//   after    %y = ipex::roll(%x, %shifts, %dims)
//
// Runs last, as rewrite_cat does. A call that the kernel does not have computes aten's op.
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::roll(%x, %shifts, %dims)").becomes("ipex::roll", {"x", "shifts", "dims"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rewrite_roll() { return {"rewrite_roll", run}; }

}  // namespace ipex::passes
