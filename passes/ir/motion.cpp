#include "ir/motion.h"

#include "ir/aliasing.h"

namespace ipex::passes {

std::optional<std::string> reason_against_waiting(const Node* node, const Node* place) {
  if (node->owningBlock() != place->owningBlock()) return "an if or a loop stands in between";
  if (written_between(node, place)) return "something is overwritten in between";
  return std::nullopt;
}

}  // namespace ipex::passes
