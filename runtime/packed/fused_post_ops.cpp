#include "packed/fused_post_ops.h"

#include <algorithm>

#include "onednn/primitive.h"

namespace ipex::runtime {

dnnl::memory::desc operand_desc(Spread spread, const dnnl::memory::desc& dst, int channel,
                                dnnl::memory::data_type type) {
  if (spread == Spread::full) return {dst.get_dims(), type, dst.get_strides()};
  dnnl::memory::dims sizes(dst.get_ndims(), 1);
  if (spread == Spread::channel) sizes[channel] = dst.get_dims()[channel];
  dnnl::memory::dims strides(sizes.size(), 1);
  for (int i = 0; i < channel; ++i) strides[i] = sizes[channel];
  return {sizes, type, strides};
}

bool is_exact(const PostOp& post_op) {
  // An unpatched oneDNN loses NaN: see docs/decisions/norms_and_elementwise.md.
  const auto is_arithmetic = [](const Step& s) {
    return s.takes_operand() || s.algorithm == dnnl::algorithm::eltwise_linear;
  };
  return !post_op.steps.empty() &&
         (IPEX_ONEDNN_IS_EXACT || std::all_of(post_op.steps.begin(), post_op.steps.end(), is_arithmetic));
}

dnnl::primitive_attr attributes(FP32MathMode math_mode, const PostOps& post_ops, const FusedPostOps& fused,
                                const dnnl::memory::desc& dst, int channel) {
  dnnl::post_ops list;
  auto spread = fused.spreads.begin();
  for (size_t i = 0; i < fused.count; ++i) {
    for (const Step& step : post_ops[i].steps) {
      if (fused.accumulates && i == 0) {
        list.append_sum();
      } else if (step.takes_operand()) {
        list.append_binary(step.algorithm, operand_desc(*spread++, dst, channel, dst.get_data_type()));
      } else {
        list.append_eltwise(step.algorithm, static_cast<float>(step.alpha), static_cast<float>(step.beta));
      }
    }
  }
  dnnl::primitive_attr attr = attributes(math_mode);
  attr.set_post_ops(list);
  return attr;
}

}  // namespace ipex::runtime
