// TorchScript's own pass analyses who may alias whom, each time, to tell which writes are dead. Where nobody writes, and
// there are no blocks, a node is dead that has no readers: going backwards finds all.
#include "pipeline/dead_code.h"

#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>

namespace ipex::passes {
namespace {

// These have no schema, and only make their results.
bool only_makes_results(const Node* node) {
  switch (node->kind()) {
    case c10::prim::Constant:
    case c10::prim::GetAttr:
    case c10::prim::ListConstruct:
    case c10::prim::ListUnpack:
    case c10::prim::TupleConstruct:
    case c10::prim::TupleUnpack:
      return true;
    default:
      return false;
  }
}

// Lists and attributes are written to as well, which has no say in aliasing.h.
bool needs_analysis(const Node* node) {
  if (only_makes_results(node)) return false;
  const auto* schema = node->maybeSchema();
  return !node->blocks().empty() || node->outputs().empty() || !schema || schema->is_mutable();
}

}  // namespace

void remove_dead_code(const std::shared_ptr<Graph>& graph) {
  auto nodes = graph->nodes();
  if (std::any_of(nodes.begin(), nodes.end(), needs_analysis)) return torch::jit::EliminateDeadCode(graph);
  auto backwards = nodes.reverse();
  for (auto it = backwards.begin(); it != backwards.end(); ++it) {
    if (!it->hasUses() && !it->hasSideEffects()) it.destroyCurrent();
  }
}

}  // namespace ipex::passes
