// Post-ops for kernels of our own: see kernels/elementwise.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <vector>

#include "kernels/elementwise.h"
#include "packed/fused_op.h"
#include "packed/post_op.h"

namespace ipex::runtime {

// The same steps for a result of which the first elements are left out. What is returned lives as long as `room`.
ElementwiseSteps later_steps(ElementwiseSteps steps, int64_t elements, c10::SmallVector<ElementwiseStep, 4>& room);

class KernelSteps {
 public:
  explicit KernelSteps(const PostOps& post_ops);

  // Whether kernels have this post-op.
  static bool applies(const PostOp& post_op);

  // Whether kernels have all the leading post-ops that oneDNN would apply.
  bool has_all() const { return has_all_; }

  // Whether every call has all post-ops applied: kernels have them, and none has an operand to look at.
  bool applies_all() const { return applies_all_; }

  // For the first post-ops, which `fused` names, on a result of so many columns. `bias` may be undefined. What is
  // returned lives as long as the tensors, this object and `room`.
  using Room = c10::SmallVector<ElementwiseStep, 4>;
  ElementwiseSteps of_call(const FusedPostOps& fused, const at::Tensor& bias, int64_t columns, Room& room) const;

 private:
  // Of the leading post-ops that kernels have.
  std::vector<ElementwiseStep> steps_;
  std::vector<bool> take_operands_;
  bool has_all_, applies_all_;
};

}  // namespace ipex::runtime
