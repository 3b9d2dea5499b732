#include "floating.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace ipex::passes {
namespace {

using torch::jit::toIValue;
using Known = std::unordered_map<const Value*, bool>;

bool is_floating_dtype(const at::Tensor& tensor) { return at::isFloatingType(tensor.scalar_type()); }

bool is_floating_constant(const Value* value) {
  const auto constant = toIValue(value);
  return constant && constant->isTensor() && is_floating_dtype(constant->toTensor());
}

// A constant that does not make a floating result something else. Complex would.
bool is_real_number(const Value* value) {
  const auto constant = toIValue(value);
  if (!constant) return false;
  if (constant->isTensor()) return constant->toTensor().dim() == 0 && !constant->toTensor().is_complex();
  return constant->isInt() || constant->isDouble() || constant->isBool();
}

// Ops of ours run on floating weights, and aten wants an input of the weight's dtype.
bool has_floating_weight(const Node* node) {
  static const std::unordered_map<std::string, size_t> weights{
      {"aten::linear", 1},       {"aten::conv1d", 1}, {"aten::conv2d", 1},     {"aten::conv3d", 1},
      {"aten::_convolution", 1}, {"aten::addmm", 2},  {"aten::embedding", 0},  {"aten::conv_transpose2d", 1},
      {"aten::matmul", 1},       {"aten::mm", 1},     {"aten::batch_norm", 3}, {"aten::layer_norm", 2},
      {"aten::group_norm", 2}};
  const std::string kind = node->kind().toQualString();
  if (kind.starts_with("ipex::") && kind.ends_with("_run")) return kind != "ipex::matmul_run";
  const auto weight = weights.find(kind);
  return weight != weights.end() && is_floating_constant(node->input(weight->second));
}

// The dtype of the result is that of the first operand.
bool hands_dtype_on(const std::string& kind) {
  static const std::unordered_set<std::string> kinds{
      "aten::relu",       "aten::relu_",       "aten::hardtanh",
      "aten::hardtanh_",  "aten::relu6",       "aten::silu",
      "aten::gelu",       "ipex::erf_gelu",    "aten::mish",
      "aten::hardswish",  "aten::hardsigmoid", "aten::sigmoid",
      "aten::tanh",       "aten::erf",         "aten::leaky_relu",
      "aten::elu",        "aten::dropout",     "aten::max_pool2d",
      "aten::avg_pool2d", "aten::neg",         "aten::adaptive_avg_pool2d",
      "aten::view",       "aten::reshape",     "aten::flatten",
      "aten::transpose",  "aten::permute",     "aten::slice",
      "aten::select",     "aten::squeeze",     "aten::unsqueeze",
      "aten::contiguous", "aten::batch_norm",  "aten::layer_norm",
      "aten::group_norm", "aten::clone",       "aten::expand",
      "aten::split",      "aten::chunk",       "prim::ListUnpack",
      "aten::add_",       "aten::mul_"};
  return kinds.count(kind) > 0;
}

bool promotes(const std::string& kind) {
  return kind == "aten::add" || kind == "aten::sub" || kind == "aten::mul" || kind == "aten::div";
}

bool is_floating(const Value* value, Known& known) {
  if (const auto found = known.find(value); found != known.end()) return found->second;
  const Node* node = value->node();
  const std::string kind = node->kind().toQualString();
  bool answer = is_floating_constant(value) || has_floating_weight(node);
  if (!answer && hands_dtype_on(kind)) answer = is_floating(node->input(0), known);
  if (!answer && promotes(kind)) {
    const Value *a = node->input(0), *b = node->input(1);
    answer = (is_floating(a, known) && (is_real_number(b) || is_floating(b, known))) ||
             (is_real_number(a) && is_floating(b, known));
  }
  // aten multiplies no integers with floating point.
  if (!answer && (kind == "aten::matmul" || kind == "aten::bmm" || kind == "ipex::matmul_run")) {
    answer = is_floating(node->input(0), known) || is_floating(node->inputs().back(), known);
  }
  if (!answer && (kind == "aten::cat" || kind == "prim::ListConstruct")) {
    const auto parts = kind == "aten::cat" ? node->inputs().slice(0, 1) : node->inputs();
    answer = !parts.empty() &&
             std::all_of(parts.begin(), parts.end(), [&](const Value* part) { return is_floating(part, known); });
  }
  return known[value] = answer;
}

}  // namespace

bool is_floating(const Value* value) {
  Known known;
  return is_floating(value, known);
}

}  // namespace ipex::passes
