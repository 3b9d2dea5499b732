// Products of a few float32 rows and a packed weight: see kernels/few_rows.h. Such products wait for memory, and the
// smallest for the calls around them: this reads the weight that oneDNN's primitives read, and makes no primitive.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/few_rows.h"
#include "onednn/primitive.h"
#include "ops/fused_op.h"
#include "post_op.h"

namespace ipex::runtime {

class FewRows {
 public:
  explicit FewRows(const PostOps& post_ops);

  // Whether the kernel has this post-op.
  static bool applies(const PostOp& post_op);

  // Whether the kernel can take over from oneDNN: it reads such panels, and has all post-ops that oneDNN would apply.
  bool can_multiply_by(const Panels& panels) const;

  // Whether every call has all post-ops applied: the kernel has them, and none has an operand to look at.
  bool applies_all() const { return applies_all_; }

  // result = post-ops(input . panels + bias), for dense tensors and the first post-ops. `bias` may be undefined.
  void multiply(const at::Tensor& input, const Panels& panels, const at::Tensor& bias, const Fused& fused,
                const at::Tensor& result) const;

 private:
  // Of the leading post-ops that the kernel has, and how many steps the first of them are.
  std::vector<FewRowsStep> steps_;
  std::vector<size_t> step_counts_;
  bool has_all_, applies_all_;
};

}  // namespace ipex::runtime
