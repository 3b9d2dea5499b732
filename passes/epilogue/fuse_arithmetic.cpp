// fuse_arithmetic: let the packed op that produces a value subtract, multiply, divide or compare it with a tensor.
//
//   before   %y = ipex::linear_run(%x, %packed, [..])            %z = aten::mul(%y, %other)
//   after    %z = ipex::linear_run(%x, %packed', [.., %other])   packed' = packed + post-op mul
//
// Addition has a rule of its own. Declines when alpha is not 1, when a division rounds, and when %y is the divisor:
// oneDNN has no such form.
#include "pattern/fusion_rule.h"

namespace ipex::passes {
namespace {

const FusionRule rule = FusionRule("fuse_arithmetic")
                            .match("%z = aten::sub(%y, %other, %alpha)")
                            .only_if("other", is_tensor)
                            .declines_unless("alpha", is_one, "alpha is not 1")
                            .append("sub", {"other"})
                            .match("%z = aten::sub_(%y, %other, %alpha)")
                            .only_if("other", is_tensor)
                            .declines_unless("alpha", is_one, "alpha is not 1")
                            .append("sub_", {"other"})
                            .match("%z = aten::sub(%other, %y, %alpha)")
                            .only_if("other", is_tensor)
                            .declines_unless("alpha", is_one, "alpha is not 1")
                            .append("rsub", {"other"})
                            .match("%z = aten::mul(%y, %other)")
                            .only_if("other", is_tensor)
                            .append("mul", {"other"})
                            .match("%z = aten::mul_(%y, %other)")
                            .only_if("other", is_tensor)
                            .append("mul_", {"other"})
                            .match("%z = aten::mul(%other, %y)")
                            .only_if("other", is_tensor)
                            .append("rmul", {"other"})
                            .match("%z = aten::div(%y, %other)")
                            .only_if("other", is_tensor)
                            .append("div", {"other"})
                            .match("%z = aten::div_(%y, %other)")
                            .only_if("other", is_tensor)
                            .append("div_", {"other"})
                            .match("%z = aten::div.Tensor_mode(%y, %other, %rounding)")
                            .declines_unless("rounding", is_none, "it rounds")
                            .append("div", {"other"})
                            .match("%z = aten::maximum(%y, %other)")
                            .append("maximum", {"other"})
                            .match("%z = aten::maximum(%other, %y)")
                            .append("rmaximum", {"other"})
                            .match("%z = aten::max.other(%y, %other)")
                            .append("maximum", {"other"})
                            .match("%z = aten::max.other(%other, %y)")
                            .append("rmaximum", {"other"})
                            .match("%z = aten::minimum(%y, %other)")
                            .append("minimum", {"other"})
                            .match("%z = aten::minimum(%other, %y)")
                            .append("rminimum", {"other"})
                            .match("%z = aten::min.other(%y, %other)")
                            .append("minimum", {"other"})
                            .match("%z = aten::min.other(%other, %y)")
                            .append("rminimum", {"other"});
IPEX_REGISTER_FUSION(rule);

}  // namespace
}  // namespace ipex::passes
