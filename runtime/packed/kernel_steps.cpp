#include "packed/kernel_steps.h"

#include <algorithm>

namespace ipex::runtime {
namespace {

OperandSpread spread_of(Spread spread) {
  return spread == Spread::full      ? OperandSpread::full
         : spread == Spread::channel ? OperandSpread::column
                                     : OperandSpread::all;
}

}  // namespace

ElementwiseSteps later_steps(ElementwiseSteps steps, int64_t elements, c10::SmallVector<ElementwiseStep, 4>& room) {
  room.assign(steps.first, steps.first + steps.count);
  for (ElementwiseStep& step : room) {
    if (step.operand && step.spread == OperandSpread::full) step.operand += elements;
  }
  steps.first = room.data();
  return steps;
}

// Of those with an operand, what oneDNN would do too: fused_op.cpp looks at the operand for both.
bool KernelSteps::applies(const PostOp& post_op) {
  return post_op.computation && kind_of(post_op.computation->operation) == OperationKind::function &&
         (!post_op.kind->takes_operand() || !post_op.steps.empty());
}

KernelSteps::KernelSteps(const PostOps& post_ops) {
  const auto first_left = std::find_if_not(post_ops.begin(), post_ops.end(), applies);
  for (auto op = post_ops.begin(); op != first_left; ++op) {
    const Computation& computation = *op->computation;
    steps_.push_back(
        {computation.operation, computation.a, computation.b, computation.c, /*operand=*/nullptr, OperandSpread::full});
    take_operands_.push_back(op->kind->takes_operand());
  }
  has_all_ = first_left == post_ops.end() || !is_exact(*first_left);
  applies_all_ = first_left == post_ops.end() && operand_count(post_ops) == 0;
}

ElementwiseSteps KernelSteps::of_call(const FusedPostOps& fused, const at::Tensor& bias, int64_t columns,
                                      Room& room) const {
  const ElementwiseStep* first = steps_.data();
  if (!fused.operands.empty()) {
    room.assign(first, first + fused.count);
    size_t next = 0;
    for (size_t i = 0; i < fused.count; ++i) {
      if (!take_operands_[i]) continue;
      room[i].spread = spread_of(fused.spreads[next]);
      room[i].operand = fused.operands[next++].const_data_ptr<float>();
    }
    first = room.data();
  }
  return {bias.defined() ? bias.const_data_ptr<float>() : nullptr, first, static_cast<int64_t>(fused.count), columns};
}

}  // namespace ipex::runtime
