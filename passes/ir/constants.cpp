#include "ir/constants.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <charconv>
#include <cmath>

#include "ir/lists.h"

namespace ipex::passes {

namespace {

std::optional<at::Scalar> scalar(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  if (!constant) return std::nullopt;
  if (constant->isInt() || constant->isDouble()) return constant->toScalar();
  if (!constant->isTensor()) return std::nullopt;
  const at::Tensor tensor = constant->toTensor();
  const bool is_real =
      tensor.device().is_cpu() && tensor.dim() == 0 && tensor.scalar_type() != at::kBool && !tensor.is_complex();
  return is_real ? std::optional(tensor.item()) : std::nullopt;
}

}  // namespace

std::optional<double> number(const Value* value) {
  const auto found = scalar(value);
  return found ? std::optional(found->toDouble()) : std::nullopt;
}

std::optional<int64_t> constant_integer(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isInt() ? std::optional(constant->toInt()) : std::nullopt;
}

std::optional<std::vector<int64_t>> integers_of(const Value* list) {
  if (const auto constant = torch::jit::toIValue(list)) {
    return constant->isIntList() ? std::optional(constant->toIntVector()) : std::nullopt;
  }
  const auto elements = elements_of(list);
  if (!elements) return std::nullopt;
  std::vector<int64_t> integers;
  for (const Value* element : *elements) {
    const auto integer = constant_integer(element);
    if (!integer) return std::nullopt;
    integers.push_back(*integer);
  }
  return integers;
}

bool is_true(const Value* value) { return torch::jit::toIValue(value) == c10::IValue(true); }

bool is_false(const Value* value) { return torch::jit::toIValue(value) == c10::IValue(false); }

bool is_list_of(const Value* value, const std::vector<int64_t>& integers) {
  return torch::jit::toIValue(value) == c10::IValue(integers);
}

bool is_same_argument(const Value* a, const Value* b) {
  if (a == b) return true;
  const auto first = torch::jit::toIValue(a), second = torch::jit::toIValue(b);
  return first && second && !first->isTensor() && !second->isTensor() && *first == *second;
}

std::optional<std::string> number_text(const Value* value, bool negative) {
  const auto found = scalar(value);
  if (!found) return std::nullopt;
  char digits[32];
  char* const end = digits + sizeof digits;
  if (found->isIntegral(/*includeBool=*/false)) {
    const int64_t whole = found->toLong();
    return std::string(digits, std::to_chars(digits, end, negative ? -whole : whole).ptr);
  }
  const double real = found->toDouble();
  if (std::isnan(real)) return std::nullopt;
  const std::string text(digits, std::to_chars(digits, end, negative ? -real : real).ptr);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;  // "inf" and "nan" have an n
}

Value* shared_constant(Graph& graph, const c10::IValue& value) {
  constexpr size_t most_looked_at = 16, most_readers = 64;
  const c10::TypePtr type = value.type();
  size_t looked_at = 0;
  for (Node* node : graph.nodes()) {
    if (node->kind() != c10::prim::Constant || looked_at++ == most_looked_at) break;
    if (node->output()->uses().size() >= most_readers || *node->output()->type() != *type) continue;
    if (*torch::jit::toIValue(node->output()) == value) return node->output();
  }
  const torch::jit::WithInsertPoint guard(*graph.nodes().begin());
  return graph.insertConstant(value);
}

}  // namespace ipex::passes
