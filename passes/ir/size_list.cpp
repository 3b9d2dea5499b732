#include "ir/size_list.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <iterator>

#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/ranks.h"

namespace ipex::passes {
namespace {

bool is_given_sizes(const Node* node) {
  static const OpName by_sizes[] = {OpName("aten::reshape"), OpName("aten::view."), OpName("aten::expand")};
  return is_of_any(by_sizes, node);
}

}  // namespace

std::optional<int64_t> length_of(const Value* list) {
  const auto constant = torch::jit::toIValue(list);
  if (constant && constant->isIntList()) return std::ssize(constant->toIntVector());
  const auto sizes = elements_of(list);
  return sizes ? std::optional(std::ssize(*sizes)) : std::nullopt;
}

bool is_reshape(const Node* node) {
  static const OpName reshape("aten::reshape"), view("aten::view.");
  return reshape.is_of(node) || view.is_of(node);
}

bool is_size_of(const Value* size, const Value* x, size_t dimension) {
  static const OpName of_dimension("aten::size.int"), of_all("aten::size");
  const Node* node = size->node();
  const auto is_dimension = [&](const Value* number) {
    return constant_integer(number) == static_cast<int64_t>(dimension);
  };
  if (of_dimension.is_of(node)) return node->input(0) == x && is_dimension(node->input(1));
  const bool unpacks = node->kind() == c10::prim::ListUnpack;
  if (unpacks ? size->offset() != dimension : node->kind() != c10::aten::__getitem__ || !is_dimension(node->input(1)))
    return false;
  const Node* list = node->input(0)->node();
  return of_all.is_of(list) && list->inputs().size() == 1 && list->input(0) == x;
}

bool is_size(const Value* value) {
  if (const auto known = constant_integer(value)) return *known >= 0;
  const Node* node = value->node();
  if (node->kind() == c10::prim::ListUnpack) node = node->input()->node();
  if (node->kind() == c10::aten::size) return true;
  const bool is_of_sizes = node->kind() == c10::aten::mul || node->kind() == c10::aten::floordiv;
  return is_of_sizes && node->inputs().size() == 2 && is_size(node->input(0)) && is_size(node->input(1));
}

Value* given_size(Value* value, int64_t d) {
  constexpr int furthest = 8;
  const auto rank = Ranks(furthest).of(value).exact();
  if (!rank) return nullptr;
  const auto from_front = [&](int64_t dim) { return dim < 0 ? dim + *rank : dim; };
  for (d = from_front(d); d >= 0 && d < *rank; value = value->node()->input(0)) {
    Node* node = value->node();
    if (is_given_sizes(node)) {
      const auto sizes = elements_of(node->input(1));
      if (!sizes || std::ssize(*sizes) != *rank) return nullptr;
      Value* size = sizes->at(static_cast<size_t>(d));
      return is_size(size) ? size : nullptr;
    }
    if (node->kind() == c10::aten::transpose) {
      const auto a = constant_integer(node->input(1)), b = constant_integer(node->input(2));
      if (!a || !b) return nullptr;
      d = d == from_front(*a) ? from_front(*b) : d == from_front(*b) ? from_front(*a) : d;
      continue;
    }
    const auto order = node->kind() == c10::aten::permute ? torch::jit::toIValue(node->input(1)) : std::nullopt;
    if (!order || std::ssize(order->toIntVector()) != *rank) return nullptr;
    d = from_front(order->toIntVector()[static_cast<size_t>(d)]);
  }
  return nullptr;
}

}  // namespace ipex::passes
