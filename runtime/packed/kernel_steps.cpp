#include "packed/kernel_steps.h"

#include <algorithm>
#include <optional>

namespace ipex::runtime {
namespace {

std::optional<Elementwise> operation_of(const Step& step) {
  using enum dnnl::algorithm;
  switch (step.algorithm) {
    case eltwise_relu:
      return step.alpha == 0 ? Elementwise::relu : Elementwise::leaky_relu;
    case eltwise_clip_v2:
      return Elementwise::clip;
    case eltwise_linear:
      return Elementwise::linear;
    case eltwise_abs:
      return Elementwise::abs;
    case eltwise_square:
      return Elementwise::square;
    case eltwise_hardsigmoid:
      return Elementwise::hardsigmoid;
    case eltwise_hardswish:
      return Elementwise::hardswish;
    case eltwise_logistic:
      return Elementwise::sigmoid;
    case eltwise_swish:
      return Elementwise::silu;
    case eltwise_tanh:
      return Elementwise::tanh;
    case eltwise_gelu_erf:
      return Elementwise::gelu_erf;
    case eltwise_gelu_tanh:
      return Elementwise::gelu_tanh;
    case binary_add:
      return Elementwise::add;
    case binary_sub:
      return Elementwise::sub;
    case binary_mul:
      return Elementwise::mul;
    case binary_div:
      return Elementwise::div;
    default:
      return std::nullopt;
  }
}

OperandSpread spread_of(Spread spread) {
  return spread == Spread::full      ? OperandSpread::full
         : spread == Spread::channel ? OperandSpread::column
                                     : OperandSpread::all;
}

}  // namespace

bool KernelSteps::applies(const PostOp& post_op) {
  return !post_op.steps.empty() && std::all_of(post_op.steps.begin(), post_op.steps.end(),
                                               [](const Step& step) { return operation_of(step).has_value(); });
}

KernelSteps::KernelSteps(const PostOps& post_ops) {
  const auto first_left = std::find_if_not(post_ops.begin(), post_ops.end(), applies);
  for (auto op = post_ops.begin(); op != first_left; ++op) {
    for (const Step& step : op->steps) {
      steps_.push_back({*operation_of(step), static_cast<float>(step.alpha), static_cast<float>(step.beta),
                        /*operand=*/nullptr, OperandSpread::full});
    }
    step_counts_.push_back(steps_.size());
  }
  has_all_ = first_left == post_ops.end() || !is_exact(*first_left);
  applies_all_ = first_left == post_ops.end() && operand_count(post_ops) == 0;
}

ElementwiseSteps KernelSteps::of_call(const FusedPostOps& fused, const at::Tensor& bias, int64_t columns,
                                      Room& room) const {
  const size_t count = fused.count == 0 ? 0 : step_counts_[fused.count - 1];
  const ElementwiseStep* first = steps_.data();
  if (!fused.operands.empty()) {
    room.assign(first, first + count);
    size_t next = 0;
    for (ElementwiseStep& step : room) {
      if (step.operation < Elementwise::add) continue;
      step.spread = spread_of(fused.spreads[next]);
      step.operand = fused.operands[next++].const_data_ptr<float>();
    }
    first = room.data();
  }
  return {bias.defined() ? bias.const_data_ptr<float>() : nullptr, first, static_cast<int64_t>(count), columns};
}

}  // namespace ipex::runtime
