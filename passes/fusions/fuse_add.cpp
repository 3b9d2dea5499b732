// fuse_add: let the packed op that produces a value add a residual to it.
//
//   before   %y = ipex::conv2d_run(%x, %packed, [..])            %z = aten::add(%y, %other, %alpha=1)
//   after    %z = ipex::conv2d_run(%x, %packed', [.., %other])   packed' = packed + post-op add
//
// Works after every packed op and in both operand orders. %other is only read, so it may be anything: a graph input, a
// view, a value that others need. Where it is broadcast, or its dtype is another one, the packed op leaves the addition
// to aten.
// Declines when alpha is not 1, when %other is a number, when %y has another reader, or when %other is what gets
// overwritten (`other += y`): others may be waiting for that write.
#include "fusion_rule.h"

namespace ipex::passes {
namespace {

const FusionRule rule = FusionRule("fuse_add")
                            .match("%z = aten::add(%y, %other, %alpha)")
                            .when("other", is_tensor, "its operand is a number")
                            .when("alpha", is_one, "alpha is not 1")
                            .append("add", "other")
                            .match("%z = aten::add_(%y, %other, %alpha)")
                            .when("other", is_tensor, "its operand is a number")
                            .when("alpha", is_one, "alpha is not 1")
                            .append("add_", "other")
                            .match("%z = aten::add(%other, %y, %alpha)")
                            .when("other", is_tensor, "its operand is a number")
                            .when("alpha", is_one, "alpha is not 1")
                            .append("radd", "other");
IPEX_REGISTER_FUSION(rule);

}  // namespace
}  // namespace ipex::passes
