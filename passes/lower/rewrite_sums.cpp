// rewrite_sums: sums, variances, largest elements and Euclidean norms over some dimensions are computed in vectors of what
// lies innermost, in any layout.
//
//   before   %y = aten::sum(%x, %dim, %keepdim, %dtype)
//   after    %y = ipex::sum(%x, %dim, %keepdim)
//
// and ipex::vector_norm for aten::linalg_vector_norm, or aten::norm as scripted models have it; ipex::var, ipex::std
// and ipex::amax for those of aten; ipex::max_values for an aten::max.dim of which nobody reads the indices.
// aten has vectors for dense rows, and for what is contiguous. The ops look at the layout that they get. Declines other norms,
// and those that give a dtype or no dimensions.
#include <torch/csrc/jit/ir/constants.h>

#include "ir/graph_walk.h"
#include "pattern/fusion_rule.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool is_a_known_bool(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isBool();
}

bool is_a_list(const Value* dims) {
  const auto constant = torch::jit::toIValue(dims);
  return constant && constant->isIntList() && !constant->toIntVector().empty();
}

// aten::var and aten::std, which are given a correction, or whether they have that of Bessel.
std::vector<Spelling> deviations() {
  std::vector<Spelling> all;
  for (const std::string name : {"var", "std"}) {
    const auto build = [name](const Match& match) {
      const auto unbiased = match.values.find("unbiased");
      Graph* graph = match.last()->owningGraph();
      Value* correction = unbiased == match.values.end()
                              ? match["correction"]
                              : graph->insertConstant(torch::jit::toIValue(unbiased->second)->toBool() ? 1 : 0);
      return graph->insertNode(graph->create(Symbol::fromQualString("ipex::" + name),
                                             {match["x"], match["dim"], correction, match["keepdim"]}));
    };
    all.push_back(Spelling("%y = aten::" + name + ".dim(%x, %dim, %unbiased, %keepdim)")
                      .declines_unless("dim", is_a_list, "it does not say which dimensions")
                      .declines_unless("unbiased", is_a_known_bool, "its correction is no constant")
                      .becomes("ipex::" + name, build));
    all.push_back(Spelling("%y = aten::" + name + ".correction(%x, %dim, %correction, %keepdim)")
                      .declines_unless("dim", is_a_list, "it does not say which dimensions")
                      .becomes("ipex::" + name, build));
  }
  return all;
}

bool rewrite_max_values(Context& context) {
  bool changed = false;
  for_each(context.graph, "aten::max.dim", [&](Node* node) {
    if (node->output(1)->hasUses()) return context.declined(node, "somebody reads its indices");
    context.applied(node, "became ipex::max_values");
    const torch::jit::WithInsertPoint guard(node);
    Value* values = node->owningGraph()->insert(Symbol::fromQualString("ipex::max_values"),
                                                {node->input(0), node->input(1), node->input(2)});
    values->copyMetadata(node->output(0));
    values->node()->setSourceRange(node->sourceRange());
    node->output(0)->replaceAllUsesWith(values);
    node->destroy();
    changed = true;
  });
  return changed;
}

bool run(Context& context) {
  static const std::vector<Spelling> variances = deviations();
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
      Spelling("%y = aten::amax(%x, %dim, %keepdim)")
          .declines_unless("dim", is_a_list, "it does not say which dimensions")
          .becomes("ipex::amax", {"x", "dim", "keepdim"}),
      Spelling("%y = aten::norm.ScalarOpt_dim(%x, %p, %dim, %keepdim)")
          .declines_unless("p", equals(2), "it is not the Euclidean norm")
          .declines_unless("dim", is_a_list, "it does not say which dimensions")
          .becomes("ipex::vector_norm", {"x", "dim", "keepdim"})};
  const bool changed = rewrite_spellings(context, spellings) | rewrite_spellings(context, variances);
  return rewrite_max_values(context) || changed;
}

}  // namespace

Pass rewrite_sums() { return {"rewrite_sums", run}; }

}  // namespace ipex::passes
