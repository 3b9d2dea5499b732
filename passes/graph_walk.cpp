#include "graph_walk.h"

namespace ipex::passes {

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
