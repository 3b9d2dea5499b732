// TorchScript's own pass analyses who may alias whom, each time, to tell which writes are dead. Where nobody writes, and
// there are no blocks, a node is dead that has no readers: going backwards finds all.
#include "pipeline/dead_code.h"

#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>

#include "ops/op_table.h"

namespace ipex::passes {
namespace {

// Lists and attributes are written to as well, which has no say in aliasing.h.
bool needs_analysis(const Node* node) {
  if (!node->blocks().empty() || node->outputs().empty()) return true;
  if (has_trait(node, trait::carries)) return false;
  const auto* schema = node->maybeSchema();
  return !schema || schema->is_mutable();
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
