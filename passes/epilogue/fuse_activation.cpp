// fuse_activation: let the packed op that produces a value apply an activation itself.
//
//   before   %y = ipex::convolution_run(%x, %packed, ..)    %z = aten::relu(%y)
//   after    %z = ipex::convolution_run(%x, %packed', ..)   packed' = packed + post-op relu
//
// Works after every packed op. Declines when %y has another reader (someone needs the value before the activation), or
// when a number is no constant.
#include <torch/csrc/jit/ir/constants.h>

#include "ir/constants.h"
#include "pattern/fusion_rule.h"

namespace ipex::passes {
namespace {

bool is_erf(const Value* approximate) {
  const auto text = torch::jit::toIValue(approximate);
  return text && text->isString() && text->toStringRef() == "none";
}

bool is_tanh(const Value* approximate) {
  const auto text = torch::jit::toIValue(approximate);
  return text && text->isString() && text->toStringRef() == "tanh";
}

bool is_square_or_root(const Value* exponent) { return number(exponent) == 2 || number(exponent) == .5; }

const FusionRule rule =
    FusionRule("fuse_activation")
        .match("%z = aten::relu_?(%y)")
        .append("relu")
        .match("%z = aten::relu6_?(%y)")
        .append("relu6")
        .match("%z = aten::leaky_relu_?(%y, %slope)")
        .append("leaky_relu(%slope)")
        .match("%z = aten::prelu(%y, %weight)")
        .append("prelu", {"weight"})
        .match("%z = aten::elu_?(%y, %alpha, %scale, %input_scale)")
        .append("elu(%alpha,%scale,%input_scale)")
        .match("%z = aten::selu_?(%y)")
        .append("selu")
        .match("%z = aten::celu_?(%y, %alpha)")
        .append("celu(%alpha)")
        .match("%z = aten::gelu_?(%y, %approximate)")
        .only_if("approximate", is_erf)
        .append("gelu")
        .match("%z = aten::gelu_?(%y, %approximate)")
        .only_if("approximate", is_tanh)
        .append("gelu_tanh")
        .match("%z = ipex::erf_gelu(%y)")
        .append("erf_gelu")
        .match("%z = aten::silu_?(%y)")
        .append("silu")
        .match("%z = aten::mish_?(%y)")
        .append("mish")
        .match("%z = aten::sigmoid_?(%y)")
        .append("sigmoid")
        .match("%z = aten::hardsigmoid_?(%y)")
        .append("hardsigmoid")
        .match("%z = aten::hardswish_?(%y)")
        .append("hardswish")
        .match("%z = aten::hardtanh_?(%y, %min, %max)")
        .append("hardtanh(%min,%max)")
        .match("%z = aten::clamp_?(%y, %min, %max)")
        .only_if("min", is_number)
        .only_if("max", is_number)
        .append("clamp(%min,%max)")
        .match("%z = aten::clamp_?(%y, %min, %max)")
        .only_if("min", is_number)
        .only_if("max", is_none)
        .append("clamp_min(%min)")
        .match("%z = aten::clamp_?(%y, %min, %max)")
        .only_if("min", is_none)
        .only_if("max", is_number)
        .append("clamp_max(%max)")
        .match("%z = aten::clamp_min_?(%y, %min)")
        .append("clamp_min(%min)")
        .match("%z = aten::clamp_max_?(%y, %max)")
        .append("clamp_max(%max)")
        .match("%z = aten::tanh_?(%y)")
        .append("tanh")
        .match("%z = aten::exp_?(%y)")
        .append("exp")
        .match("%z = aten::log_?(%y)")
        .append("log")
        .match("%z = aten::sqrt_?(%y)")
        .append("sqrt")
        .match("%z = aten::square_?(%y)")
        .append("square")
        .match("%z = aten::abs_?(%y)")
        .append("abs")
        .match("%z = aten::round_?(%y)")
        .append("round")
        .match("%z = aten::neg_?(%y)")
        .append("neg")
        .match("%z = aten::softplus(%y, %beta, %threshold)")
        .append("softplus(%beta,%threshold)")
        .match("%z = aten::pow_?(%y, %exponent)")
        .declines_unless("exponent", is_square_or_root, "only squares and square roots have a fused form")
        .append("pow(%exponent)");
IPEX_REGISTER_FUSION(rule);

}  // namespace
}  // namespace ipex::passes
