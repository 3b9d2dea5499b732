// The leading post-ops of one call that a kernel applies itself, and how oneDNN is told of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "math_mode.h"
#include "onednn/dnnl.h"
#include "packed/post_op.h"

namespace ipex::runtime {

// How a post-op's operand is spread over the result: it has the result's shape, or one element per channel, or one for
// all.
enum class Spread { full, channel, all };

struct FusedPostOps {
  size_t count = 0;
  // Of the operands as the kernel reads them.
  std::vector<Spread> spreads;
  std::vector<at::Tensor> operands;
  // Whether the first post-op, an addition, accumulates into its operand, which is the result then and none of the
  // operands above.
  bool accumulates = false;
};

// Whether this oneDNN gives aten's result for the post-op, NaN included.
bool is_exact(const PostOp& post_op);

// An operand of such a spread and type beside a result `dst` whose dimension `channel` has the channels.
dnnl::memory::desc operand_desc(Spread spread, const dnnl::memory::desc& dst, int channel,
                                dnnl::memory::data_type type);

// Attributes that make a primitive compute in this mode and apply the first of `post_ops` to a result `dst` whose
// dimension `channel` has the channels.
dnnl::primitive_attr attributes(FP32MathMode math_mode, const PostOps& post_ops, const FusedPostOps& fused,
                                const dnnl::memory::desc& dst, int channel);

}  // namespace ipex::runtime
