// rewrite_softmax: a softmax that is no part of attention is computed by our kernel, whose exponential is faster.
//
//   before   %y = aten::softmax(%x, %dim, %dtype)
//   after    %y = ipex::softmax(%x, %dim, %dtype)
//
// So is log_softmax.
// Runs after the passes that look for aten::softmax.
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::softmax(%x, %dim, %dtype)").becomes("ipex::softmax", {"x", "dim", "dtype"}),
      Spelling("%y = aten::log_softmax(%x, %dim, %dtype)").becomes("ipex::log_softmax", {"x", "dim", "dtype"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rewrite_softmax() { return {"rewrite_softmax", run}; }

}  // namespace ipex::passes
