#include "graph_walk.h"

namespace ipex::passes {

void replace(Node* node, Node* replacement) {
  replacement->setSourceRange(node->sourceRange());
  replacement->setScope(node->scope());
  node->output()->replaceAllUsesWith(replacement->output());
  replacement->output()->copyMetadata(node->output());
  node->destroy();
}

}  // namespace ipex::passes
