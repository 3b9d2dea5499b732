#include "ir/motion.h"

#include <algorithm>

#include "ir/aliasing.h"

namespace ipex::passes {

bool stops_motion(const Node* node) {
  const auto stops = [](const Block* block) {
    return std::any_of(block->nodes().begin(), block->nodes().end(), stops_motion);
  };
  const auto blocks = node->blocks();
  return node->kind() == c10::prim::SetAttr || may_write(node) || std::any_of(blocks.begin(), blocks.end(), stops);
}

bool written_between(const Node* first, const Node* second) {
  for (const Node* between = first->next(); between != second; between = between->next()) {
    if (stops_motion(between)) return true;
  }
  return false;
}

std::optional<std::string> reason_against_waiting(const Node* node, const Node* place) {
  if (node->owningBlock() != place->owningBlock()) return "an if or a loop stands in between";
  if (written_between(node, place)) return "something is overwritten in between";
  return std::nullopt;
}

}  // namespace ipex::passes
