// gather_selects: what is selected index by index of one tensor is one op, as steps over time that a trace has written down.
//
//   before   %a = aten::select(%x, 1, 0)    ..    %b = aten::select(%x, 1, 1)    ..
//   after    %list = ipex::selects(%x, 1, [0, 1, ..])    %a, %b, .. = prim::ListUnpack(%list)
//
// A view costs the interpreter as much as a small op. Views may be made earlier than before: what is written into the memory later, they show.
// Declines where an op changes the shape of a tensor in place, as views made before it would not follow. A few selects gain nothing.
#include <torch/csrc/jit/ir/constants.h>

#include <map>
#include <tuple>

#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

constexpr size_t worth_gathering = 4;

using Selects = std::vector<Node*>;

bool changes_shapes(const std::shared_ptr<Graph>& graph) {
  bool found = false;
  for_each_node(graph->block(), [&](const Node* node) {
    const Op* op = op_of(node);
    found |= may_write(node) && (!op || op->writes == Writes::shape);
  });
  return found;
}

// By tensor, dimension and block, in the order of the graph: those that are worth it.
std::vector<Selects> all_selects(const std::shared_ptr<Graph>& graph) {
  std::map<std::tuple<const Value*, int64_t, const Block*>, size_t> numbers;
  std::vector<Selects> found;
  for_each(graph, "aten::select.int", [&](Node* node) {
    const auto dimension = constant_integer(node->input(1)), index = constant_integer(node->input(2));
    if (!dimension || !index) return;
    const auto key = std::make_tuple(node->input(0), *dimension, node->owningBlock());
    const auto [entry, is_new] = numbers.emplace(key, found.size());
    if (is_new) found.emplace_back();
    found[entry->second].push_back(node);
  });
  std::erase_if(found, [](const Selects& selects) { return selects.size() < worth_gathering; });
  return found;
}

void gather(Context& context, const Selects& selects) {
  Node* first = selects.front();
  Graph& graph = *context.graph;
  const torch::jit::WithInsertPoint guard(first);
  std::vector<int64_t> indices;
  for (const Node* select : selects) indices.push_back(*constant_integer(select->input(2)));
  Node* all = graph.create(Symbol::fromQualString("ipex::selects"),
                           {first->input(0), first->input(1), graph.insertConstant(indices)});
  graph.insertNode(all)->output()->setType(c10::ListType::ofTensors());
  Node* unpack = graph.insertNode(graph.createListUnpack(all->output(), selects.size()));
  for (Node* node : {all, unpack}) {
    node->setSourceRange(first->sourceRange());
    node->setScope(first->scope());
  }
  for (size_t i = 0; i < selects.size(); ++i) {
    context.applied(selects[i], c10::str("one of ", selects.size(), " in one call"));
    unpack->output(i)->copyMetadata(selects[i]->output());
    selects[i]->output()->replaceAllUsesWith(unpack->output(i));
    selects[i]->destroy();
  }
}

bool run(Context& context) {
  const std::vector<Selects> all = all_selects(context.graph);
  if (all.empty()) return false;
  const bool stay = changes_shapes(context.graph);
  for (const Selects& selects : all) {
    if (stay) {
      context.declined(selects.front(), "an op changes the shape of a tensor in place");
    } else {
      gather(context, selects);
    }
  }
  return !stay;
}

}  // namespace

Pass gather_selects() { return {"gather_selects", run}; }

}  // namespace ipex::passes
