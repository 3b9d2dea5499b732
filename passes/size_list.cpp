#include "size_list.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <iterator>

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

std::optional<int64_t> length_of(const Value* list) {
  const auto constant = torch::jit::toIValue(list);
  if (constant && constant->isIntList()) return std::ssize(constant->toIntVector());
  const auto sizes = sizes_in(const_cast<Value*>(list));
  return sizes ? std::optional(std::ssize(*sizes)) : std::nullopt;
}

bool is_size(const Value* value) {
  if (const auto known = constant_integer(value)) return *known >= 0;
  const Node* node = value->node();
  if (node->kind() == c10::aten::size) return true;
  const bool is_of_sizes = node->kind() == c10::aten::mul || node->kind() == c10::aten::floordiv;
  return is_of_sizes && node->inputs().size() == 2 && is_size(node->input(0)) && is_size(node->input(1));
}

}  // namespace ipex::passes
