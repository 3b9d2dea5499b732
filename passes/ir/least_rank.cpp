#include "ir/least_rank.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/size_list.h"

namespace ipex::passes {
namespace {

// How many dimensions a tensor has in which `dim` can be named.
int64_t rank_that_has(const Value* dim) {
  const auto number = constant_integer(dim);
  return !number ? 0 : *number < 0 ? -*number : *number + 1;
}

int64_t least_rank(const Value* value, int steps) {
  if (const auto constant = torch::jit::toIValue(value)) return constant->isTensor() ? constant->toTensor().dim() : 0;
  const Node* node = value->node();
  if (steps == 0) return 0;
  const auto of_input = [&](size_t i) { return least_rank(node->input(i), steps - 1); };
  static const OpName sized[] = {OpName("aten::view"), OpName("aten::reshape"), OpName("aten::permute"),
                                 OpName("aten::expand"), OpName("aten::new_zeros")};
  static const OpName made[] = {OpName("aten::zeros"), OpName("aten::ones"), OpName("aten::full")};
  static const OpName same[] = {OpName("aten::contiguous"), OpName("aten::clone"), OpName("aten::cumsum"),
                                OpName("aten::softmax.int")};
  static const OpName broadcast[] = {OpName("aten::add.Tensor"), OpName("aten::sub.Tensor"), OpName("aten::mul.Tensor"),
                                     OpName("aten::div.Tensor"), OpName("aten::maximum"),    OpName("aten::minimum")};
  static const OpName slice("aten::slice.Tensor"), select("aten::select.int"), unsqueeze("aten::unsqueeze"),
      transpose("aten::transpose.int"), unbind("aten::unbind.int");
  static const OpName cuts[] = {OpName("aten::split.Tensor"), OpName("aten::split_with_sizes"), OpName("aten::chunk")};
  if (is_of_any(sized, node)) return length_of(node->input(1)).value_or(0);
  if (is_of_any(made, node)) return length_of(node->input(0)).value_or(0);
  if (is_of_any(broadcast, node)) return std::max(of_input(0), of_input(1));
  if (slice.is_of(node)) return std::max(of_input(0), rank_that_has(node->input(1)));
  if (select.is_of(node)) return std::max(of_input(0), rank_that_has(node->input(1))) - 1;
  if (node->kind() == c10::prim::ListUnpack) {
    const Node* list = node->input()->node();
    const auto of_whole = [&](const Value* dim) {
      return std::max(least_rank(list->input(0), steps - 1), rank_that_has(dim));
    };
    if (unbind.is_of(list)) return of_whole(list->input(1)) - 1;
    return is_of_any(cuts, list) ? of_whole(list->input(2)) : 0;
  }
  if (unsqueeze.is_of(node)) return std::max(of_input(0) + 1, rank_that_has(node->input(1)));
  if (transpose.is_of(node)) {
    return std::max({of_input(0), rank_that_has(node->input(1)), rank_that_has(node->input(2))});
  }
  return has_trait(node, trait::elementwise) || is_of_any(same, node) ? of_input(0) : 0;
}

}  // namespace

int64_t least_rank(const Value* value) {
  constexpr int far_enough = 8;
  return least_rank(value, far_enough);
}

}  // namespace ipex::passes
