// rewrite_softmax: a softmax that is no part of attention is computed by our kernel, whose exponential is faster.
//
//   before   %y = aten::softmax(%x, %dim, %dtype)
//   after    %y = ipex::softmax(%x, %dim, %dtype)
//
// Runs after the passes that look for aten::softmax. Declines when it is known not to be of the last dimension.
#include <torch/csrc/jit/ir/constants.h>

#include "passes.h"
#include "spelling.h"

namespace ipex::passes {
namespace {

// 0 and 1 are the last dimension of some inputs: the op looks at the one it gets.
bool may_be_last(const Value* dim) {
  const auto constant = torch::jit::toIValue(dim);
  return constant && constant->isInt() && constant->toInt() >= -1;
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::softmax(%x, %dim, %dtype)")
          .declines_unless("dim", may_be_last, "it is not of the last dimension")
          .becomes("ipex::softmax", {"x", "dim", "dtype"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rewrite_softmax() { return {"rewrite_softmax", run}; }

}  // namespace ipex::passes
