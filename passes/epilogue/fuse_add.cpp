// fuse_add: let the packed op that produces a value add a residual to it.
//
//   before   %y = ipex::convolution_run(%x, %packed, [..])            %z = aten::add(%y, %other, %alpha=1)
//   after    %z = ipex::convolution_run(%x, %packed', [.., %other])   packed' = packed + post-op add
//
// Works after every packed op and in both operand orders. %other may be anything: a graph input, a view, a value that
// others need. It is only read, unless the packed op finds at the call that nobody else holds it. oneDNN adds one of
// the same shape, one per channel, or a single one, where it has the result's dtype; aten, called by the packed op,
// does the rest, as it does with an alpha other than 1.
// Declines when alpha is not 1 and scales %y, when %y has another reader, or when %other is what gets overwritten
// (`other += y`): others may be waiting for that write.
#include "pattern/fusion_rule.h"

namespace ipex::passes {
namespace {

const FusionRule rule = FusionRule("fuse_add")
                            .match("%z = aten::add(%y, %other, %alpha)")
                            .only_if("other", is_tensor)
                            .only_if("alpha", is_one)
                            .append("add", {"other"})
                            .match("%z = aten::add(%y, %other, %alpha)")
                            .only_if("other", is_tensor)
                            .append("add_scaled(%alpha)", {"other"})
                            .match("%z = aten::add_(%y, %other, %alpha)")
                            .only_if("other", is_tensor)
                            .only_if("alpha", is_one)
                            .append("add_", {"other"})
                            .match("%z = aten::add_(%y, %other, %alpha)")
                            .only_if("other", is_tensor)
                            .append("add_scaled_(%alpha)", {"other"})
                            .match("%z = aten::add(%other, %y, %alpha)")
                            .only_if("other", is_tensor)
                            .declines_unless("alpha", is_one, "alpha is not 1")
                            .append("radd", {"other"});
IPEX_REGISTER_FUSION(rule);

}  // namespace
}  // namespace ipex::passes
