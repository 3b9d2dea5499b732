// rewrite_as_linear: a product with a constant matrix is a linear, however it is spelled.
//
//   before   %y = aten::addmm(%bias, %x, %w, %beta=1, %alpha=1)     after   %y = aten::linear(%x, %w^T, %bias)
//   before   %y = aten::matmul(%x, %w)                              after   %y = aten::linear(%x, %w^T, %none)
//   before   %y = aten::einsum("bij,jk->bik", [%x, %w])             after   %s = ipex::einsum_factor(%x, %rows_of_w)
//                                                                           %y = aten::linear(%s, %w^T, %none)
//            %y = aten::einsum("bih,hnd->bind", [%x, %w])            after   .. and %z = aten::unflatten(%y, -1, [n, d])
//
// An einsum may sum over several dimensions, and get several from its weight, as where the heads of attention have a
// dimension of their own.
// Declines when the matrix is no constant one of float32, bfloat16 or float16, when a bias is no constant vector or
// row, when addmm scales, or when an einsum sums over anything but the last dimensions of %x, or over one that it may have
// to broadcast.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "anchor/anchor.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::IValue;
using torch::jit::toIValue;

struct Linear {
  Value* x = nullptr;
  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out], undefined where there is none
  // Of an einsum: those of the dimensions that it sums over, the last ones of x, of which it repeats one of one element as
  // often as the sum needs; and those of the dimensions of its result that come from the weight.
  std::vector<int64_t> summed, sizes;
  int64_t rank = 0;  // that the equation gives x. 0: any
};

constexpr const char* no_matrix = "its second factor is not a constant matrix of float32, bfloat16 or float16";

std::optional<at::Tensor> constant_tensor(const Value* value, int64_t rank) {
  const auto constant = toIValue(value);
  if (!constant || !constant->isTensor()) return std::nullopt;
  const at::Tensor tensor = constant->toTensor();
  const bool fits =
      tensor.dim() == rank && is_packable(tensor.scalar_type()) && tensor.device().is_cpu() && tensor.numel() > 0;
  return fits ? std::optional(tensor) : std::nullopt;
}

std::optional<std::string> read_addmm(const Node* node, Linear& linear) {
  const auto matrix = constant_tensor(node->namedInput("mat2"), 2);
  if (!matrix) return no_matrix;
  if (number(node->namedInput("beta")) != 1 || number(node->namedInput("alpha")) != 1) return "it scales a term";
  auto bias = constant_tensor(node->namedInput("self"), 1);
  if (!bias) bias = constant_tensor(node->namedInput("self"), 2);
  if (!bias || bias->numel() != matrix->size(1) || bias->size(-1) != matrix->size(1)) {
    return "what it adds is not a constant vector";
  }
  linear = {node->namedInput("mat1"), matrix->t(), bias->view(-1)};
  return std::nullopt;
}

std::optional<std::string> read_matmul(const Node* node, Linear& linear) {
  const auto matrix = constant_tensor(node->input(1), 2);
  if (!matrix) return no_matrix;
  linear = {node->input(0), matrix->t()};
  return std::nullopt;
}

std::optional<std::string> read_einsum(const Node* node, Linear& linear) {
  const auto equation = toIValue(node->input(0));
  const auto factors = elements_of(node->input(1));
  if (!equation || !factors || factors->size() != 2) return no_matrix;
  const auto constant = toIValue(factors->at(1));
  const int64_t rank = constant ? constant->toTensor().dim() : 0;
  const auto tensor = constant_tensor(factors->at(1), std::max<int64_t>(rank, 2));
  if (!tensor) return no_matrix;

  std::string text = equation->toStringRef();
  std::erase(text, ' ');
  const size_t comma = text.find(','), arrow = text.find("->");
  constexpr const char* another_sum = "it is not a sum over the last dimensions of its first factor";
  if (comma == std::string::npos || arrow == std::string::npos || arrow < comma) return another_sum;
  const std::string x = text.substr(0, comma), w = text.substr(comma + 1, arrow - comma - 1),
                    result = text.substr(arrow + 2);
  const auto is_in = [](const std::string& letters, char c) { return letters.find(c) != std::string::npos; };
  const auto differ = [](const std::string& letters) {
    return std::all_of(letters.begin(), letters.end(),
                       [&](char c) { return c == '.' || std::count(letters.begin(), letters.end(), c) == 1; });
  };
  size_t rows = x.size();
  while (rows > 0 && is_in(w, x[rows - 1])) --rows;
  const std::string summed = x.substr(rows), kept = result.substr(std::min(rows, result.size()));
  const bool has_all = std::all_of(w.begin(), w.end(), [&](char c) { return is_in(summed, c) || is_in(kept, c); });
  if (summed.empty() || kept.empty() || !has_all || is_in(w, '.') || w.size() != static_cast<size_t>(rank) ||
      w.size() != summed.size() + kept.size() || !differ(x + kept) || !differ(w) ||
      result != x.substr(0, rows) + kept) {
    return another_sum;
  }
  std::vector<int64_t> order, sizes;
  for (const char c : kept + summed) {
    order.push_back(static_cast<int64_t>(w.find(c)));
    sizes.push_back(tensor->size(order.back()));
  }
  linear.sizes = {sizes.begin(), sizes.begin() + static_cast<int64_t>(kept.size())};
  linear.summed = {sizes.begin() + static_cast<int64_t>(kept.size()), sizes.end()};
  if (std::count(linear.summed.begin(), linear.summed.end(), 1)) {
    return "an einsum spreads a dimension of one element over any number";
  }
  // aten gives it a stride that no view of a linear's result has.
  if (kept.size() > 1 && std::count(linear.sizes.begin(), linear.sizes.end(), 1)) {
    return "a dimension of its result has one element";
  }
  linear.x = factors->at(0);
  linear.rank = is_in(x, '.') ? 0 : static_cast<int64_t>(x.size());
  linear.weight =
      tensor->permute(order).reshape({c10::multiply_integers(linear.sizes), c10::multiply_integers(linear.summed)});
  return std::nullopt;
}

using Read = std::optional<std::string> (*)(const Node*, Linear&);
const std::pair<const char*, Read> spellings[] = {{"aten::addmm", read_addmm},
                                                  {"aten::matmul", read_matmul},
                                                  {"aten::mm", read_matmul},
                                                  {"aten::einsum", read_einsum}};

bool run(Context& context) {
  const Symbol einsum_factor = Symbol::fromQualString("ipex::einsum_factor");
  bool changed = false;
  for (const auto& [kind, read] : spellings) {
    for_each(context.graph, kind, [&, read = read](Node* node) {
      Linear linear;
      if (const auto reason = read(node, linear)) return context.declined(node, *reason);
      context.applied(node, "rewritten as linear");
      const torch::jit::WithInsertPoint guard(node);
      if (linear.summed.size() == 1) {
        linear.x = context.graph->insert(einsum_factor, {linear.x, linear.summed[0], linear.rank});
      } else if (linear.summed.size() > 1) {
        linear.x = context.graph->insert(einsum_factor, {linear.x, linear.summed, linear.rank});
      }
      Value* weight = context.graph->insertConstant(linear.weight);
      Value* bias = context.graph->insertConstant(linear.bias.defined() ? IValue(linear.bias) : IValue());
      Value* result = context.graph->insert(c10::aten::linear, {linear.x, weight, bias});
      if (linear.sizes.size() > 1) result = context.graph->insert(c10::aten::unflatten, {result, -1, linear.sizes});
      replace(node, result->node());
      changed = true;
    });
  }
  return changed;
}

}  // namespace

Pass rewrite_as_linear() {
  return {"rewrite_as_linear", run, needs(lists_are_values, roundings_read) + establishes(one_linear_pattern)};
}

}  // namespace ipex::passes
