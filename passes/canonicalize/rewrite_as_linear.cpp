// rewrite_as_linear: a product with a constant matrix is a linear, however it is spelled.
//
//   before   %y = aten::addmm(%bias, %x, %w, %beta=1, %alpha=1)     after   %y = aten::linear(%x, %w^T, %bias)
//   before   %y = aten::matmul(%x, %w)                              after   %y = aten::linear(%x, %w^T, %none)
//   before   %y = aten::einsum("bij,jk->bik", [%x, %w])             after   %s = ipex::einsum_factor(%x, %rows_of_w)
//                                                                           %y = aten::linear(%s, %w^T, %none)
//
// Declines when the matrix is no constant one of float32, bfloat16 or float16, when a bias is no constant vector, when
// addmm scales, or when an einsum sums over anything but the last dimension of %x, or over one that it may have to
// broadcast.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "anchor.h"
#include "constants.h"
#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

struct Linear {
  Value* x = nullptr;
  at::Tensor weight;  // [out, in]
  Value* bias = nullptr;
  bool spreads_x = false;  // einsum repeats a last dimension of one element as often as the sum needs
};

constexpr const char* no_matrix = "its second factor is not a constant matrix of float32, bfloat16 or float16";

std::optional<at::Tensor> constant_tensor(const Value* value, int64_t rank) {
  const auto constant = toIValue(value);
  if (!constant || !constant->isTensor()) return std::nullopt;
  const at::Tensor tensor = constant->toTensor();
  const bool fits = tensor.defined() && tensor.dim() == rank && is_packable(tensor.scalar_type()) &&
                    tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.numel() > 0;
  return fits ? std::optional(tensor) : std::nullopt;
}

std::optional<std::string> read_addmm(const Node* node, Linear& linear) {
  const auto matrix = constant_tensor(node->namedInput("mat2"), 2);
  if (!matrix) return no_matrix;
  if (number(node->namedInput("beta")) != 1 || number(node->namedInput("alpha")) != 1) return "it scales a term";
  linear = {node->namedInput("mat1"), matrix->t(), node->namedInput("self")};
  const auto bias = constant_tensor(linear.bias, 1);
  if (!bias || bias->size(0) != matrix->size(1)) return "what it adds is not a constant vector";
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
  const Node* list = node->input(1)->node();
  if (!equation || list->kind() != c10::prim::ListConstruct || list->inputs().size() != 2) return no_matrix;
  const auto matrix = constant_tensor(list->input(1), 2);
  if (!matrix) return no_matrix;

  std::string text = equation->toStringRef();
  std::erase(text, ' ');
  const size_t comma = text.find(','), arrow = text.find("->");
  constexpr const char* another_sum = "it is not a sum over the last dimension of its first factor";
  if (comma == std::string::npos || arrow != comma + 3 || comma == 0) return another_sum;
  const std::string x = text.substr(0, comma), w = text.substr(comma + 1, 2), result = text.substr(arrow + 2);
  const char summed = x.back();
  const char kept = w[0] == summed ? w[1] : w[0];
  const std::string rows = x.substr(0, x.size() - 1);
  const bool letters_differ =
      std::all_of(x.begin(), x.end(), [&](char c) { return c == '.' || std::count(x.begin(), x.end(), c) == 1; });
  if (w.find(summed) == std::string::npos || w[0] == w[1] || x.find(kept) != std::string::npos || !letters_differ ||
      result != rows + kept) {
    return another_sum;
  }
  const at::Tensor weight = w[0] == kept ? *matrix : matrix->t();
  if (weight.size(1) == 1) return "an einsum spreads a dimension of one element over any number";
  linear = {list->input(0), weight, nullptr, /*spreads_x=*/true};
  return std::nullopt;
}

using Read = std::optional<std::string> (*)(const Node*, Linear&);
const std::pair<const char*, Read> spellings[] = {{"aten::addmm", read_addmm},
                                                  {"aten::matmul", read_matmul},
                                                  {"aten::mm", read_matmul},
                                                  {"aten::einsum", read_einsum}};

bool run(Context& context) {
  bool changed = false;
  for (const auto& [kind, read] : spellings) {
    for_each(context.graph, kind, [&, read = read](Node* node) {
      Linear linear;
      if (const auto reason = read(node, linear)) return context.declined(node, *reason);
      context.applied(node, "rewritten as linear");
      const torch::jit::WithInsertPoint guard(node);
      if (linear.spreads_x) {
        linear.x =
            context.graph->insert(Symbol::fromQualString("ipex::einsum_factor"), {linear.x, linear.weight.size(1)});
      }
      Value* weight = context.graph->insertConstant(linear.weight);
      Value* bias = linear.bias ? linear.bias : context.graph->insertConstant(torch::jit::IValue());
      replace(node, context.graph->insert(c10::aten::linear, {linear.x, weight, bias})->node());
      changed = true;
    });
  }
  return changed;
}

}  // namespace

Pass rewrite_as_linear() { return {"rewrite_as_linear", run}; }

}  // namespace ipex::passes
