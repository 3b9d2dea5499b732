#include "told_aliases.h"

#include "ir/aliasing.h"
#include "ir/flow.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/schemas.h"
#include "ops/op_table.h"

namespace ipex::passes {
namespace {

// The tensors in whose memory the result may lie by the op table, and not by the schema.
std::vector<Value*> untold_sources(Node* node) {
  if (!op_of(node) || !node->maybeSchema() || node->outputs().size() != 1 || !has_tensor_type(node->output()))
    return {};
  std::vector<Value*> sources;
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    if (flow_of(Use(node, i)).names.empty() || hands_on_argument(node, i)) continue;
    if (has_tensor_type(node->input(i))) sources.push_back(node->input(i));
    const auto elements = elements_of(node->input(i));
    if (elements) sources.insert(sources.end(), elements->begin(), elements->end());
  }
  return sources;
}

}  // namespace

void tell_aliases(const std::shared_ptr<Graph>& graph) {
  std::vector<std::pair<Node*, Value*>> untold;
  for_each_node(graph->block(), [&](Node* node) {
    for (Value* source : untold_sources(node)) untold.emplace_back(node, source);
  });
  if (untold.empty()) return;
  const bool writes_anything = writes_to_shared_memory(graph);
  for (const auto& [node, given] : untold) {
    const bool is_written = is_in_fresh_memory(given) ? is_overwritten_after(given, node) : writes_anything;
    if (!is_written) continue;
    const torch::jit::WithInsertPoint guard(node->next());
    static const Symbol lies_in = Symbol::fromQualString("ipex::lies_in");
    Value* told = graph->insert(lies_in, {node->output(), given});
    node->output()->replaceAllUsesAfterNodeWith(told->node(), told);
  }
}

bool remove_told_aliases(const std::shared_ptr<Graph>& graph) {
  bool changed = false;
  for_each(graph, "ipex::lies_in", [&](Node* node) {
    if (node->input(0) != node->input(1)) return;
    node->output()->replaceAllUsesWith(node->input(0));
    node->destroy();
    changed = true;
  });
  return changed;
}

}  // namespace ipex::passes
