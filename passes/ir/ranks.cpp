#include "ir/ranks.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/size_list.h"

namespace ipex::passes {
namespace {

// How many dimensions a tensor has at least in which `dim` can be named.
int64_t rank_that_has(const Value* dim) {
  const auto number = constant_integer(dim);
  return !number ? 0 : *number < 0 ? -*number : *number + 1;
}

Rank exactly(std::optional<int64_t> rank) { return rank ? Rank{*rank, true} : Rank{}; }

Rank at_least(Rank rank, int64_t least) { return {std::max(rank.least, least), rank.is_exact}; }

Rank and_more(Rank rank, int64_t more) { return {std::max<int64_t>(rank.least + more, 0), rank.is_exact}; }

}  // namespace

Rank Ranks::of(const Value* value, int distance) {
  const auto known = known_.find(value);
  if (known != known_.end()) return known->second;
  if (distance > furthest_) return {};
  const Rank found = find(value, distance);
  known_[value] = found;
  return found;
}

Rank Ranks::find(const Value* value, int distance) {
  if (const auto constant = torch::jit::toIValue(value)) {
    return constant->isTensor() ? exactly(constant->toTensor().dim()) : Rank{};
  }
  const Node* node = value->node();
  const auto of_input = [&](size_t i) { return of(node->input(i), distance + 1); };
  static const OpName sized[] = {OpName("aten::view."), OpName("aten::reshape"), OpName("aten::permute"),
                                 OpName("aten::expand"), OpName("aten::new_zeros")};
  static const OpName made[] = {OpName("aten::zeros"), OpName("aten::ones"), OpName("aten::full")};
  static const OpName same[] = {OpName("aten::contiguous"),  OpName("aten::clone"),      OpName("aten::cumsum"),
                                OpName("aten::softmax.int"), OpName("aten::layer_norm"), OpName("aten::linear"),
                                OpName("aten::roll"),        OpName("aten::pad"),        OpName("aten::dropout")};
  static const OpName broadcast[] = {OpName("aten::maximum"), OpName("aten::minimum")};
  static const OpName slice("aten::slice.Tensor"), select("aten::select.int"), unsqueeze("aten::unsqueeze"),
      transpose("aten::transpose.int"), unbind("aten::unbind.int");
  static const OpName cuts[] = {OpName("aten::split.Tensor"), OpName("aten::split_with_sizes"), OpName("aten::chunk")};
  if (is_of_any(sized, node)) return exactly(length_of(node->input(1)));
  if (is_of_any(made, node)) return exactly(length_of(node->input(0)));
  if (is_of_any(broadcast, node) || (has_trait(node, trait::promotes) && has_tensor_type(node->input(1)))) {
    const Rank a = of_input(0), b = of_input(1);
    return {std::max(a.least, b.least), a.is_exact && b.is_exact};
  }
  if (slice.is_of(node)) return at_least(of_input(0), rank_that_has(node->input(1)));
  if (select.is_of(node)) return and_more(at_least(of_input(0), rank_that_has(node->input(1))), -1);
  if (unsqueeze.is_of(node)) return at_least(and_more(of_input(0), 1), rank_that_has(node->input(1)));
  if (transpose.is_of(node)) {
    return at_least(at_least(of_input(0), rank_that_has(node->input(1))), rank_that_has(node->input(2)));
  }
  if (node->kind() == c10::prim::ListUnpack) {
    const Node* list = node->input()->node();
    const auto of_whole = [&](const Value* dim) {
      return at_least(of(list->input(0), distance + 1), rank_that_has(dim));
    };
    if (unbind.is_of(list)) return and_more(of_whole(list->input(1)), -1);
    return is_of_any(cuts, list) ? of_whole(list->input(2)) : Rank{};
  }
  if (has_trait(node, trait::joins)) {
    const auto parts = elements_of(node->input(0));
    const Rank first = parts && !parts->empty() ? of(parts->front(), distance + 1) : Rank{};
    // What is empty and has one dimension is left out of what is joined.
    return first.is_exact && first.least > 1 ? first : Rank{};
  }
  return has_trait(node, trait::elementwise) || is_of_any(same, node) ? of_input(0) : Rank{};
}

}  // namespace ipex::passes
