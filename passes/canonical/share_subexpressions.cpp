// share_subexpressions: what is computed from constants alone is computed now, and what is computed twice, once.
//
//   before   %a = aten::t(%constant)    %b = aten::size(%x, 0)    %c = aten::size(%x, 0)
//   after    %a is a constant           %b = aten::size(%x, 0)    %c is %b
//
// TorchScript's own passes do it. Declines as a whole where memory is overwritten that others may share (aliasing.h).
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/csrc/jit/passes/constant_propagation.h>

#include "ir/aliasing.h"
#include "lifted_tensors.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  std::shared_ptr<Graph> same = context.graph;
  bool changed = torch::jit::ConstantPropagation(same, /*ignore_custom_classes=*/true);
  if (writes_to_shared_memory(context.graph)) return changed;
  LiftedTensors lifted(*context.graph);
  lifted.lift_constants(*context.graph);
  changed |= torch::jit::EliminateCommonSubexpression(context.graph);
  lifted.put_back(*context.graph);
  return changed;
}

}  // namespace

Pass share_subexpressions() { return {"share_subexpressions", run, needs(no_dropout, roundings_read)}; }

}  // namespace ipex::passes
