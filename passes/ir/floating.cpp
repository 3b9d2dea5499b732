#include "ir/floating.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_map>

#include "ops/op_table.h"

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

// aten wants an input of the weight's dtype.
bool has_floating_weight(const Op& op, const Node* node) {
  return op.weight >= 0 && is_floating_constant(node->input(static_cast<size_t>(op.weight)));
}

// Further up than so many ops nobody looks: a long chain would cost as much at each of its ops.
constexpr int furthest = 500;

bool is_floating(const Value* value, Known& known, int distance = 0) {
  if (distance > furthest) return false;
  if (const auto found = known.find(value); found != known.end()) return found->second;
  known[value] = false;  // until it is known, for loops
  const Node* node = value->node();
  const Op* op = op_of(node);
  bool answer = is_floating_constant(value);
  if (!op || answer) return known[value] = answer;
  answer = op->has(trait::floating) || has_floating_weight(*op, node) || is_quantized_layer_of_floats(node);
  if (!answer && op->has(trait::keeps_dtype)) answer = is_floating(node->input(0), known, distance + 1);
  if (!answer && op->has(trait::promotes)) {
    const Value *a = node->input(0), *b = node->input(1);
    const auto floats = [&](const Value* v) { return is_floating(v, known, distance + 1); };
    answer = (floats(a) && (is_real_number(b) || floats(b))) || (is_real_number(a) && floats(b));
  }
  if (!answer && op->has(trait::multiplies)) {
    answer =
        is_floating(node->input(0), known, distance + 1) || is_floating(node->inputs().back(), known, distance + 1);
  }
  if (!answer && (op->has(trait::joins) || node->kind() == c10::prim::ListConstruct)) {
    const auto parts = op->has(trait::joins) ? node->inputs().slice(0, 1) : node->inputs();
    answer = !parts.empty() && std::all_of(parts.begin(), parts.end(),
                                           [&](const Value* part) { return is_floating(part, known, distance + 1); });
  }
  return known[value] = answer;
}

}  // namespace

bool is_quantized_layer_of_floats(const Node* node) {
  static const OpName layers[] = {OpName("ipex::quantized_linear_run"), OpName("ipex::quantized_convolution_run")};
  if (!is_of_any(layers, node)) return false;
  const Node* prepack = node->input(1)->node();
  return is_prepack(prepack) && toIValue(prepack->namedInput("result"))->toDoubleList().empty();
}

bool is_floating(const Value* value) {
  Known known;
  return is_floating(value, known);
}

}  // namespace ipex::passes
