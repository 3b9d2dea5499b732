// rewrite_sums: sums and Euclidean norms over some dimensions are computed in vectors of what lies innermost, in any layout.
//
//   before   %y = aten::sum(%x, %dim, %keepdim, %dtype)
//   after    %y = ipex::sum(%x, %dim, %keepdim)
//
// and ipex::vector_norm for aten::linalg_vector_norm, or aten::norm as scripted models have it.
// aten has vectors for dense rows, and for what is contiguous. The ops look at the layout that they get. Declines other norms,
// and those that give a dtype or no dimensions.
#include <torch/csrc/jit/ir/constants.h>

#include "fusion_rule.h"
#include "passes.h"
#include "spelling.h"

namespace ipex::passes {
namespace {

bool is_a_list(const Value* dims) {
  const auto constant = torch::jit::toIValue(dims);
  return constant && constant->isIntList() && !constant->toIntVector().empty();
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::linalg_vector_norm(%x, %ord, %dim, %keepdim, %dtype)")
          .declines_unless("ord", equals(2), "it is not the Euclidean norm")
          .declines_unless("dim", is_a_list, "it does not say which dimensions")
          .declines_unless("dtype", is_none, "it gives a dtype of its own")
          .becomes("ipex::vector_norm", {"x", "dim", "keepdim"}),
      Spelling("%y = aten::sum.dim_IntList(%x, %dim, %keepdim, %dtype)")
          .declines_unless("dim", is_a_list, "it does not say which dimensions")
          .declines_unless("dtype", is_none, "it gives a dtype of its own")
          .becomes("ipex::sum", {"x", "dim", "keepdim"}),
      Spelling("%y = aten::norm.ScalarOpt_dim(%x, %p, %dim, %keepdim)")
          .declines_unless("p", equals(2), "it is not the Euclidean norm")
          .declines_unless("dim", is_a_list, "it does not say which dimensions")
          .becomes("ipex::vector_norm", {"x", "dim", "keepdim"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rewrite_sums() { return {"rewrite_sums", run}; }

}  // namespace ipex::passes
