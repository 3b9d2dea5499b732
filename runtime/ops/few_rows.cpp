#include "ops/few_rows.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>

#include "kernels/kernels.h"

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

bool FewRows::applies(const PostOp& post_op) {
  return !post_op.steps.empty() && std::all_of(post_op.steps.begin(), post_op.steps.end(),
                                               [](const Step& step) { return operation_of(step).has_value(); });
}

FewRows::FewRows(const PostOps& post_ops) {
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

bool FewRows::can_multiply_by(const Panels& panels) const {
  const int64_t width = kernels().few_rows.width;
  return has_all_ && panels.columns % width == 0 && panels.columns / width <= most_vectors_of_a_panel;
}

void FewRows::multiply(const at::Tensor& input, const Panels& panels, const at::Tensor& bias, const Fused& fused,
                       const at::Tensor& result) const {
  const int64_t depth = input.size(-1), rows = input.numel() / depth, columns = result.size(-1);
  const size_t step_count = fused.count == 0 ? 0 : step_counts_[fused.count - 1];
  const FewRowsStep* steps = steps_.data();
  c10::SmallVector<FewRowsStep, 4> with_operands;
  if (!fused.operands.empty()) {
    with_operands.append(steps, steps + step_count);
    size_t next = 0;
    for (FewRowsStep& step : with_operands) {
      if (step.operation < Elementwise::add) continue;
      step.spread = spread_of(fused.spreads[next]);
      step.operand = fused.operands[next++].const_data_ptr<float>();
    }
    steps = with_operands.data();
  }
  const FewRowsProduct work{.rows = input.const_data_ptr<float>(),
                            .row_count = rows,
                            .depth = depth,
                            .panels = panels.data,
                            .panel_columns = panels.columns,
                            .panel_size = panels.size,
                            .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                            .steps = steps,
                            .step_count = static_cast<int64_t>(step_count),
                            .result = result.data_ptr<float>(),
                            .columns = columns};
  const int64_t group = panels.columns * panels_of_a_group(rows);
  constexpr int64_t elements_worth_a_thread = 1 << 15;
  const int64_t grain = elements_worth_a_thread / (depth * group) + 1;
  const auto multiply = kernels().few_rows.multiply;
  at::parallel_for(0, (columns + group - 1) / group, grain,
                   [&](int64_t first, int64_t last) { multiply(work, first, last); });
}

}  // namespace ipex::runtime
