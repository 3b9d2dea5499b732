// A layer of 8-bit numbers by oneDNN: over the memory of a residual that nobody else reads, or with a result of its own.
#include <ATen/ATen.h>

#include "ops/quantized/quantized_op.h"
#include "packed/dead_operand.h"

namespace ipex::runtime {

using dnnl::memory;

const QuantizedOp::Algorithm QuantizedOp::over_operand{
    "oneDNN over an operand",
    [](const Call& call) -> const char* {
      if (!call.has_all()) return "not all of its post-ops are exact";
      return call.overwrites_operand() ? nullptr : "it adds no numbers that only it reads";
    },
    [](Call& call) -> at::Tensor {
      const QuantizedOp& layer = call.layer;
      FusedPostOps fused = call.fused;
      const at::Tensor seen = fused.operands.front();
      fused.accumulates = true;
      fused.spreads.erase(fused.spreads.begin());
      fused.operands.erase(fused.operands.begin());
      const std::shared_ptr<const Prepared> prepared = layer.prepare(call.source, fused, /*quantizes=*/true);
      if (!prepared) return {};
      at::Tensor result = in_memory_of(call.operands.front(), seen.sizes(), layer.kernel_format());
      const Failure failure =
          prepared->run(call.source, layer.weight_for(*prepared), layer.bias(), result, fused.operands);
      TORCH_CHECK(!failure, layer.name(), ": oneDNN failed, and may have overwritten an operand by then: ", *failure);
      return result;
    }};

const QuantizedOp::Algorithm QuantizedOp::onednn{
    "oneDNN", [](const Call&) -> const char* { return nullptr; },
    [](Call& call) -> at::Tensor {
      const QuantizedOp& layer = call.layer;
      const auto quantizes = [&] { return layer.spec_.result && call.has_all(); };
      std::shared_ptr<const Prepared> prepared = layer.prepare(call.source, call.fused, quantizes());
      if (!prepared && call.fused.count > 0) {
        call.fused = {};
        prepared = layer.prepare(call.source, call.fused, quantizes());
        if (prepared) layer.remember("oneDNN can't apply these post-ops on this CPU");
      }
      if (!prepared) {
        layer.remember(
            c10::str("oneDNN has no int8 implementation for an input of ", call.source.sizes(), " on this CPU"));
        return {};
      }
      const at::Tensor result = layer.allocate(call.source, quantizes() ? at::kByte : at::kFloat);
      const Failure failure =
          prepared->run(call.source, layer.weight_for(*prepared), layer.bias(), result, call.fused.operands);
      if (!failure) return result;
      layer.remember(c10::str("oneDNN failed: ", *failure));
      return {};
    }};

at::Tensor QuantizedOp::weight_for(const Prepared& prepared) const {
  return weight_->in_layout(prepared.weights_desc(), [this] { return weight_desc(plain_weight()); });
}

std::shared_ptr<const Prepared> QuantizedOp::prepare(const at::Tensor& source, const FusedPostOps& fused,
                                                     bool quantizes) const {
  const memory::dims sizes = kernel_sizes(source);
  const auto make = [&](FP32MathMode) -> std::optional<Prepared> {
    std::vector<memory::desc> layouts = weight_->layouts();
    const memory::desc plain = weight_desc(plain_weight());
    layouts.emplace_back(plain.get_dims(), memory::data_type::s8, memory::format_tag::any);
    for (const memory::desc& layout : layouts) {
      if (const auto desc = any_primitive_desc(sizes, fused, quantizes, layout)) {
        return Prepared(desc, bias().defined(), constants(quantizes));
      }
    }
    return std::nullopt;
  };
  PrimitiveKey key(sizes.begin(), sizes.end());
  key.push_back(quantizes);
  return prepared(at::kByte, key, fused, make);
}

dnnl::primitive_desc QuantizedOp::any_primitive_desc(const memory::dims& source, const FusedPostOps& fused,
                                                     bool quantizes, const memory::desc& weight) const {
  const auto type = quantizes ? memory::data_type::u8 : memory::data_type::f32;
  const memory::desc result = result_desc(kernel_result_sizes(source), type);
  dnnl::primitive_desc desc = primitive_desc(source, weight, type, attributes(fused, result, quantizes));
  return desc && skip_reference_implementations(desc) ? desc : dnnl::primitive_desc();
}

dnnl::primitive_attr QuantizedOp::attributes(const FusedPostOps& fused, const memory::desc& result,
                                             bool quantizes) const {
  dnnl::primitive_attr attr = runtime::attributes(FP32MathMode::FP32);
  attr.set_scales_mask(DNNL_ARG_WEIGHTS, weight_scales_mask());
  if (spec_.input.zero_point != 0) attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
  if (quantizes) {
    attr.set_scales_mask(DNNL_ARG_DST, 0);
    if (spec_.result->zero_point != 0) attr.set_zero_points_mask(DNNL_ARG_DST, 0);
  }
  const auto channel = static_cast<int>(kernel_channel_dimension(result.get_ndims()));
  dnnl::post_ops list;
  size_t next = 0;
  for (size_t i = 0; i < fused.count; ++i) {
    for (const Step& step : post_ops()[i].steps) {
      if (!step.takes_operand()) {
        list.append_eltwise(step.algorithm, static_cast<float>(step.alpha), static_cast<float>(step.beta));
        continue;
      }
      const std::optional<Affine>& affine = spec_.operands[next];
      if (fused.accumulates && i == 0) {
        list.append_sum(static_cast<float>(affine->scale), static_cast<int32_t>(affine->zero_point),
                        memory::data_type::u8);
        ++next;
        continue;
      }
      const auto type = affine ? memory::data_type::u8 : memory::data_type::f32;
      const Spread spread = fused.spreads[next - size_t{fused.accumulates}];
      const memory::desc operand = operand_desc(spread, result, channel, type);
      ++next;
      if (affine) {  // the sum in units of the operand, and back
        const auto scale = static_cast<float>(affine->scale);
        list.append_eltwise(dnnl::algorithm::eltwise_linear, 1 / scale, static_cast<float>(-affine->zero_point));
        list.append_binary(step.algorithm, operand);
        list.append_eltwise(dnnl::algorithm::eltwise_linear, scale, 0);
      } else {
        list.append_binary(step.algorithm, operand);
      }
    }
  }
  attr.set_post_ops(list);
  return attr;
}

Prepared::Constants QuantizedOp::constants(bool quantizes) const {
  Prepared::Constants constants{{DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, scales_}};
  if (spec_.input.zero_point != 0) {
    constants.emplace_back(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, input_zero_point_);
  }
  if (quantizes) {
    constants.emplace_back(DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, result_scale_);
    if (spec_.result->zero_point != 0) {
      constants.emplace_back(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, result_zero_point_);
    }
  }
  return constants;
}

}  // namespace ipex::runtime
