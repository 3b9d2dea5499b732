#include "size_list.h"

#include <algorithm>

#include "constants.h"
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

bool is_size(const Value* value) {
  if (const auto known = constant_integer(value)) return *known >= 0;
  const Node* node = value->node();
  if (node->kind() == c10::aten::size) return true;
  const bool is_of_sizes = node->kind() == c10::aten::mul || node->kind() == c10::aten::floordiv;
  return is_of_sizes && node->inputs().size() == 2 && is_size(node->input(0)) && is_size(node->input(1));
}

}  // namespace ipex::passes
