#include "size_list.h"

#include <algorithm>

#include "graph_walk.h"

namespace ipex::passes {

std::optional<std::vector<Value*>> sizes_in(Value* list) {
  Node* node = list->node();
  const auto only_reads = [](const Use& use) {
    const Op* op = op_of(use.user);
    return op && (op->memory == Memory::view || op->memory == Memory::maybe_view || op->memory == Memory::fresh);
  };
  const auto& uses = list->uses();
  if (node->kind() != c10::prim::ListConstruct || !std::all_of(uses.begin(), uses.end(), only_reads)) {
    return std::nullopt;
  }
  return node->inputs().vec();
}

}  // namespace ipex::passes
