// What follows a norm in the same pass: post-ops, those of packed/post_ops.inc that have no operand.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string>
#include <vector>

#include "packed/kernel_steps.h"
#include "packed/post_op.h"

namespace ipex::runtime {

class Activations {
 public:
  // `name` is the op's.
  Activations(const char* name, const std::vector<std::string>& texts)
      : post_ops_(parse_post_ops(name, texts)),
        kernel_steps_(post_ops_),
        rest_(std::find_if_not(post_ops_.begin(), post_ops_.end(), KernelSteps::applies) - post_ops_.begin()) {
    TORCH_CHECK(operand_count(post_ops_) == 0, name, ": expected post-ops without operands, got ", texts, ".");
  }

  bool empty() const { return post_ops_.empty(); }

  // The first ones, for kernels. What is returned lives as long as this object and `room`.
  ElementwiseSteps steps(int64_t channels, KernelSteps::Room& room) const {
    FusedPostOps fused;
    fused.count = rest_;
    return kernel_steps_.of_call(fused, at::Tensor(), channels, room);
  }

  // Those that kernels don't have, in aten.
  at::Tensor with_rest(const at::Tensor& y) const { return from(rest_, y); }
  at::Tensor with_all(const at::Tensor& y) const { return from(0, y); }

 private:
  at::Tensor from(std::ptrdiff_t first, at::Tensor y) const {
    std::for_each(post_ops_.begin() + first, post_ops_.end(), [&](const PostOp& op) { y = op.apply(y, at::Tensor()); });
    return y;
  }

  PostOps post_ops_;
  KernelSteps kernel_steps_;
  std::ptrdiff_t rest_;
};

}  // namespace ipex::runtime
