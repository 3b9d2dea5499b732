// read_rounding: in a model that torch.ao.quantization quantised, a tensor that is rounded to 8-bit numbers and back is one
// op, however that is spelled, and weights are constants.
//
//   before   %q = aten::quantize_per_tensor(%x, %scale, %zero_point, %dtype)    %y = aten::dequantize(%q)
//   after    %y = aten::fake_quantize_per_tensor_affine(%x, %scale', %zero_point', 0, 255)
//
// Takes pairs of quantize_per_tensor and dequantize, those of quantized_decomposed, as prepare_pt2e's models have them, and
// fake_quantize_per_tensor_affine with tensors for scale and zero point, as modules for quantization-aware training have it.
// Signed numbers become unsigned ones, which are the same with another zero point. A range of fewer numbers becomes a clamp
// before. What is dequantised of a constant is a constant.
// Declines a scale or zero point that is no constant, numbers of more than 8 bits, and what is not dequantised.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <cmath>

#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::IValue;
using torch::jit::toIValue;
using torch::jit::WithInsertPoint;

constexpr const char *quantize = "aten::quantize_per_tensor", *dequantize = "aten::dequantize",
                     *decomposed_quantize = "quantized_decomposed::quantize_per_tensor",
                     *decomposed_dequantize = "quantized_decomposed::dequantize_per_tensor",
                     *decomposed_dequantize_channels = "quantized_decomposed::dequantize_per_channel",
                     *rounds = "aten::fake_quantize_per_tensor_affine";

// A number, or a tensor of one element.
std::optional<double> one_number(const Value* value) {
  const auto constant = toIValue(value);
  if (!constant) return std::nullopt;
  if (constant->isInt() || constant->isDouble()) return constant->toScalar().toDouble();
  if (!constant->isTensor() || constant->toTensor().numel() != 1) return std::nullopt;
  return constant->toTensor().item().toDouble();
}

// Where a channel has a scale of its own, as those of weights do.
bool makes_weights(const std::string& kind) {
  return kind == "aten::quantize_per_channel" || kind == "aten::fake_quantize_per_channel_affine" ||
         kind == "quantized_decomposed::quantize_per_channel";
}

// value = (number - zero_point) * scale, numbers from low to high.
struct Rounding {
  Value* x;
  double scale;
  int64_t zero_point, low, high;
};

std::optional<std::string> read_range(const Node* node, Rounding& rounding) {
  const auto low = one_number(node->input(3)), high = one_number(node->input(4));
  if (!low || !high) return "the range of its numbers is not constant";
  rounding.low = static_cast<int64_t>(*low);
  rounding.high = static_cast<int64_t>(*high);
  return std::nullopt;
}

std::optional<std::string> read_dtype(const Node* node, Rounding& rounding) {
  const auto dtype = one_number(node->input(3));
  if (!dtype) return "its dtype is not constant";
  const auto type = static_cast<at::ScalarType>(static_cast<int>(*dtype));
  if (type != at::kQUInt8 && type != at::kQInt8) return c10::str("its numbers are ", type, ", not of 8 bits");
  rounding.low = type == at::kQUInt8 ? 0 : -128;
  rounding.high = rounding.low + 255;
  return std::nullopt;
}

// Of a node that makes numbers, or numbers and then floats.
std::optional<std::string> read(Node* node, Rounding& rounding) {
  rounding.x = node->input(0);
  const auto scale = one_number(node->input(1)), zero_point = one_number(node->input(2));
  if (!scale || !zero_point) return "its scale is not constant, or there are several";
  rounding.scale = *scale;
  rounding.zero_point = static_cast<int64_t>(*zero_point);
  const bool has_range = kind_of(node) != quantize;
  if (const auto reason = has_range ? read_range(node, rounding) : read_dtype(node, rounding)) return reason;
  if (!(rounding.scale > 0) || !std::isfinite(rounding.scale)) return "its scale is not positive";
  if (rounding.high <= rounding.low || rounding.high - rounding.low > 255) return "its numbers have more than 8 bits";
  if (rounding.zero_point < rounding.low || rounding.zero_point > rounding.high) {
    return "its zero point is none of its numbers";
  }
  return std::nullopt;
}

// Before the node that makes the numbers: what it reads may be overwritten afterwards.
Value* insert_rounding(Node* node, const Rounding& rounding) {
  Graph& graph = *node->owningGraph();
  const WithInsertPoint guard(node);
  const int64_t zero_point = rounding.zero_point - rounding.low, highest = rounding.high - rounding.low;
  const auto placed = [&](Value* made) {
    made->node()->setSourceRange(node->sourceRange());
    made->node()->setScope(node->scope());
    return made;
  };
  Value* x = rounding.x;
  if (highest < 255) {
    const auto value_of = [&](int64_t number) { return static_cast<double>(number - zero_point) * rounding.scale; };
    x = placed(graph.insert(c10::aten::clamp, {x, value_of(0), value_of(highest)}));
  }
  return placed(
      graph.insert(Symbol::fromQualString(rounds), {x, rounding.scale, zero_point, int64_t{0}, int64_t{255}}));
}

bool is_canonical(const Node* node) {
  const bool are_numbers =
      node->input(1)->type() == c10::FloatType::get() && node->input(2)->type() == c10::IntType::get();
  return are_numbers && one_number(node->input(3)) == 0 && one_number(node->input(4)) == 255;
}

class Reading {
 public:
  explicit Reading(Context& context) : context_(context) {}

  bool run() {
    for_each_node(context_.graph->block(), [&](Node* node) {
      const std::string kind = kind_of(node);
      if (makes_weights(kind)) {
        fold(node);
      } else if (kind == dequantize || kind == decomposed_dequantize || kind == decomposed_dequantize_channels) {
        read_pair(node, kind);
      } else if (kind == rounds && !is_canonical(node)) {
        take(node, node);
      }
    });
    for_each_node(context_.graph->block(), [&](Node* node) {
      const std::string kind = kind_of(node);
      if ((kind == quantize || kind == decomposed_quantize) && node->hasUses()) {
        context_.declined(node, "its numbers are read as such, not as the floats that they stand for");
      }
    });
    return changed_;
  }

 private:
  void read_pair(Node* node, const std::string& kind) {
    if (fold(node)) return;
    Node* maker = node->input(0)->node();
    const bool is_pair = kind_of(maker) == (kind == dequantize ? quantize : decomposed_quantize) &&
                         has_tensor_type(maker->output()) && has_tensor_type(node->output());
    if (kind == decomposed_dequantize_channels || !is_pair) {
      return context_.declined(node, "what it reads is not rounded to numbers of 8 bits with one scale");
    }
    if (kind == decomposed_dequantize) {
      for (size_t i = 1; i < 5; ++i) {
        if (one_number(node->input(i)) == one_number(maker->input(i))) continue;
        return context_.declined(node, "it has another scale or zero point than what it reads");
      }
    }
    take(node, maker);
  }

  void take(Node* node, Node* with_scale) {
    Rounding rounding{};
    if (const auto reason = read(with_scale, rounding)) return context_.declined(node, *reason);
    context_.applied(node, "rounds to 8-bit numbers");
    Value*& rounded = rounded_[with_scale];
    if (!rounded) rounded = insert_rounding(with_scale, rounding);
    node->output()->replaceAllUsesWith(rounded);
    if (node == with_scale) rounded_.erase(node);  // its address may come again
    node->destroy();
    changed_ = true;
  }

  // torch's own constant folding leaves dequantize alone, and comes later.
  bool fold(Node* node) {
    const bool is_constant = std::all_of(node->inputs().begin(), node->inputs().end(),
                                         [](const Value* input) { return toIValue(input).has_value(); });
    if (!is_constant || node->outputs().size() != 1) return false;
    torch::jit::Stack stack;
    for (const Value* input : node->inputs()) stack.push_back(*toIValue(input));
    node->getOperation()(stack);
    const WithInsertPoint guard(node);
    Value* constant = context_.graph->insertConstant(stack.front());
    context_.applied(node, "computed now");
    node->output()->replaceAllUsesWith(constant);
    node->destroy();
    changed_ = true;
    return true;
  }

  Context& context_;
  std::unordered_map<const Node*, Value*> rounded_;  // of nodes that make numbers
  bool changed_ = false;
};

bool run(Context& context) { return Reading(context).run(); }

}  // namespace

Pass read_rounding() { return {"read_rounding", run, establishes(roundings_read)}; }

}  // namespace ipex::passes
