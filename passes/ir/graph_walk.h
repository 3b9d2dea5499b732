// Walking a graph, blocks inside if and loop included.
#pragma once

#include "ops/op_table.h"
#include "pipeline/pass.h"

namespace ipex::passes {

// Calls visit(node) for every node, in order. `visit` may destroy the node it is given and insert before or after it.
template <typename Visit>
void for_each_node(Block* block, Visit&& visit) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* node = *it++;
    for (Block* inner : node->blocks()) for_each_node(inner, visit);
    visit(node);
  }
}

// The same for the nodes of one op, given as "aten::relu" for every overload that the op table has of it, or as
// "aten::max.other" for one.
template <typename Visit>
void for_each(const std::shared_ptr<Graph>& graph, std::string_view op, Visit&& visit) {
  const OpName name(op);
  for_each_node(graph->block(), [&](Node* node) {
    if (name.is_of(node)) visit(node);
  });
}

// What a value goes on as where it passes the border of a block by this use: out of a branch of an if, into and out of the
// body of a loop. Empty for other uses.
std::vector<Value*> passed_on(const Use& use);

// Makes the outputs of `replacement` take the place of the node's, keeping the names and the place in the user's source
// so that dumps and tracebacks still point there, and destroys the node.
void replace(Node* node, Node* replacement);

}  // namespace ipex::passes
