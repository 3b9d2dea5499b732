// Post-ops that take longer than the rest of a layer of 8-bit numbers, and that kernels compute quickly for results of 8 bits.
#pragma once

#include <optional>

#include "kernels/quantize.h"
#include "packed/post_op.h"

namespace ipex::runtime {

inline std::optional<SlowActivation> slow_activation(const PostOp& post_op) {
  if (post_op.steps.size() != 1) return std::nullopt;
  const Step& step = post_op.steps.front();
  using enum dnnl::algorithm;
  if (step.algorithm == eltwise_swish && step.alpha == 1) return SlowActivation::silu;
  if (step.algorithm == eltwise_logistic) return SlowActivation::sigmoid;
  if (step.algorithm == eltwise_gelu_erf) return SlowActivation::gelu_erf;
  if (step.algorithm == eltwise_gelu_tanh) return SlowActivation::gelu_tanh;
  return std::nullopt;
}

// Of the last post-op, where the result is numbers.
inline std::optional<SlowActivation> last_slow_activation(const PostOps& post_ops, bool is_rounded) {
  return is_rounded && !post_ops.empty() ? slow_activation(post_ops.back()) : std::nullopt;
}

}  // namespace ipex::runtime
