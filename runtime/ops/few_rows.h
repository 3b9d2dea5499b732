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

  // Whether this is faster than oneDNN, with the post-ops given: for a few rows, and where the kernel has all that
  // oneDNN would apply.
  bool is_worth_it(int64_t rows) const { return has_all_ && rows <= most_few_rows; }

  // result = post-ops(input . panels + bias), for dense tensors and the first post-ops. `bias` may be undefined.
  void multiply(const at::Tensor& input, const Panels& panels, const at::Tensor& bias, const Fused& fused,
                const at::Tensor& result) const;

 private:
  // Of the leading post-ops that the kernel has, and how many steps the first of them are.
  std::vector<FewRowsStep> steps_;
  std::vector<size_t> step_counts_;
  bool has_all_;
};

}  // namespace ipex::runtime
