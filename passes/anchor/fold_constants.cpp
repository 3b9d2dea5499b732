// fold_constants: adding, subtracting, multiplying or dividing by a constant is something that weight and bias can do.
//
//   before   %y = ipex::convolution_run(%x, %packed, ..)    %z = aten::mul(%y, %constant)
//   after    %z = ipex::convolution_run(%x, %packed', ..)   weight' = weight * constant    bias' = bias * constant
//
// The constant is a number or a float32 tensor with one element for all or one per channel, in a shape that means the
// same for every input that the packed op takes: [C] for a linear, [C, 1, 1] for a 2-d convolution.
// Declines when %y has another reader (somebody needs the unfolded value), when the constant has another shape or dtype
// or is not finite, after a folded batch_norm or a post-op (but a zero that is added is removed there too), and where the
// weight has 16 bits: the product would be rounded, while a post-op is computed in float32. A fusion takes over what is
// declined here.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include "anchor/anchor.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

// One element per channel, in float64. None when the shape says something else.
std::optional<at::Tensor> per_channel(const Value* value, const Anchor& anchor) {
  const int64_t channels = anchor.output_channels();
  if (const auto one = number(value)) return at::full({channels}, *one, at::kDouble);
  const auto constant = torch::jit::toIValue(value);
  if (!constant || !constant->isTensor()) return std::nullopt;
  const at::Tensor tensor = constant->toTensor();
  const int64_t rank = anchor.spatial_rank() + 1;  // of a result without a batch
  if (tensor.scalar_type() != at::kFloat || !tensor.device().is_cpu() || tensor.dim() > rank) {
    return std::nullopt;
  }
  const bool is_one = tensor.numel() == 1;
  const bool is_vector = tensor.dim() == rank && tensor.size(0) == channels && tensor.numel() == channels;
  if (!is_one && !is_vector) return std::nullopt;
  return tensor.to(at::kDouble).reshape({-1}).expand({channels}).contiguous();
}

struct Affine {
  at::Tensor scale, shift;  // float64, one element per channel
};

Affine meaning(const std::string& kind, bool is_first, const at::Tensor& constant) {
  const at::Tensor ones = at::ones_like(constant), zeros = at::zeros_like(constant);
  if (kind == "aten::add") return {ones, constant};
  if (kind == "aten::sub") return is_first ? Affine{ones, -constant} : Affine{-ones, constant};
  if (kind == "aten::mul") return {constant, zeros};
  return {1 / constant, zeros};
}

void fold_one(Node* node, size_t anchor_index, Context& context, bool& changed) {
  const auto anchor = Anchor::producing(node->input(anchor_index));
  if (!anchor || !anchor->has_weight() || anchor->run()->owningBlock() != node->owningBlock()) return;
  const Value* other = node->input(1 - anchor_index);
  if (!torch::jit::toIValue(other)) return;  // no constant: a matter for fusion

  std::string kind = kind_of(node);
  if (op_of(node)->memory == Memory::itself) kind.pop_back();
  const auto constant = per_channel(other, *anchor);
  const bool has_alpha = node->inputs().size() == 3 && number(node->input(2)) != 1;  // or one that rounds
  const bool does_nothing = number(other) == 0 && (anchor_index == 0 || !has_alpha) &&
                            (kind == "aten::add" || (kind == "aten::sub" && anchor_index == 0));
  const auto reason = [&]() -> std::optional<std::string> {
    if (anchor->output()->uses().size() != 1) return "another reader needs the value before it";
    if (does_nothing) return std::nullopt;
    if (!anchor->post_ops().empty()) return "another operation comes in between";
    if (!anchor->argument("folded_scale")->mustBeNone()) return "a batch_norm is folded already";
    if (anchor->dtype() != at::kFloat) return "a 16-bit weight would be rounded once more";
    if (!constant) return "the constant is not a number or a float32 vector of the channels";
    if (has_alpha) return "alpha is not 1, or it rounds";
    if (kind == "aten::div" && anchor_index == 1) return "it divides by the packed op's result";
    return std::nullopt;
  }();
  if (reason) return context.declined(node, *reason);
  if (does_nothing) {  // as in sums that begin with 0
    context.applied(node, "removed: it adds 0");
    anchor->take_over(node);
    changed = true;
    return;
  }
  const Affine affine = meaning(kind, anchor_index == 0, *constant);
  if (!affine.scale.to(at::kFloat).isfinite().all().item<bool>() ||
      !affine.shift.to(at::kFloat).isfinite().all().item<bool>()) {
    return context.declined(node, "the constant is not finite");
  }
  if (anchor->overflows(affine.scale)) return context.declined(node, "the weight would overflow in its dtype");
  context.merged(node, "folded into ", anchor->run());
  // Next to autocast's 16-bit result a number changes no dtype; a float32 tensor does, but not in place.
  const bool is_tensor = toIValue(other)->isTensor() && toIValue(other)->toTensor().dim() > 0;
  if (is_tensor && op_of(node)->memory != Memory::itself) anchor->set_argument("widens", true);
  anchor->fold(affine.scale, affine.shift);
  anchor->take_over(node);
  changed = true;
}

bool run(Context& context) {
  bool changed = false;
  for (const char* kind :
       {"aten::add", "aten::add_", "aten::sub", "aten::sub_", "aten::mul", "aten::mul_", "aten::div", "aten::div_"}) {
    for_each(context.graph, kind, [&](Node* node) {
      const bool is_first = Anchor::producing(node->input(0)).has_value();
      const bool is_in_place = op_of(node)->memory == Memory::itself;
      if (is_first || !is_in_place) fold_one(node, is_first ? 0 : 1, context, changed);
    });
  }
  return changed;
}

}  // namespace

Pass fold_constants() { return {"fold_constants", run, needs(anchors_prepacked, full_precision, layers_apart)}; }

}  // namespace ipex::passes
