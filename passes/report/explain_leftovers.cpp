// explain_leftovers: changes nothing; gives a reason for each node that could have been fast and is not.
//
// An earlier pass may have declined a node for a more particular reason as well.
#include <algorithm>

#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// Arithmetic on sizes, which is no matter of tensors.
bool is_of_numbers(const Node* node) {
  return std::none_of(node->outputs().begin(), node->outputs().end(), has_tensor_type);
}

bool run(Context& context) {
  for_each_node(context.graph->block(), [&](Node* node) {
    const Op* op = op_of(node);
    if (op && !op->left.empty() && !is_of_numbers(node)) context.declined(node, std::string(op->left));
  });
  return false;
}

}  // namespace

Pass explain_leftovers() { return {"explain_leftovers", run}; }

}  // namespace ipex::passes
