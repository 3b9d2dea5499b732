// fuse_activation: let the packed op that produces a value apply an activation itself.
//
//   before   %y = ipex::convolution_run(%x, %packed, ..)    %z = aten::relu(%y)
//   after    %z = ipex::convolution_run(%x, %packed', ..)   packed' = packed + post-op relu
//
// The activations are rows of runtime/packed/post_ops.inc. Works after every packed op. Declines when %y has another reader (someone needs the value before the activation), or
// when a number is no constant.
#include "ir/constants.h"
#include "pattern/fusion_rule.h"

namespace ipex::passes {
namespace {

bool is_square_or_root(const Value* exponent) { return number(exponent) == 2 || number(exponent) == .5; }

const FusionRule rule =
    with_activations(FusionRule("fuse_activation"), /*are_packed=*/true)
        .match("%z = aten::prelu(%y, %weight)")
        .append("prelu", {"weight"})
        .match("%z = aten::pow_?(%y, %exponent)")
        .declines_unless("exponent", is_square_or_root, "only squares and square roots have a fused form")
        .append("pow(%exponent)");
IPEX_REGISTER_FUSION(rule);

}  // namespace
}  // namespace ipex::passes
