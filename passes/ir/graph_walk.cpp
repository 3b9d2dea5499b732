#include "ir/graph_walk.h"

namespace ipex::passes {

std::vector<Value*> passed_on(const Use& use) {
  const bool returns = use.user->kind() == c10::prim::Return;
  Node* owner = returns ? use.user->owningBlock()->owningNode() : use.user;
  if (owner && returns && owner->kind() == c10::prim::If) return {owner->output(use.offset)};
  // The number of rounds and a condition come first in what a loop reads, a condition in what its body returns, the round
  // in what its body reads.
  const size_t first = returns ? 1 : 2;
  if (!owner || owner->kind() != c10::prim::Loop || use.offset < first) return {};
  const size_t carried = use.offset - first;
  return {owner->output(carried), owner->blocks().front()->inputs().at(carried + 1)};
}

void replace(Node* node, Node* replacement) {
  replacement->setSourceRange(node->sourceRange());
  replacement->setScope(node->scope());
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    node->output(i)->replaceAllUsesWith(replacement->output(i));
    replacement->output(i)->copyMetadata(node->output(i));
  }
  node->destroy();
}

}  // namespace ipex::passes
