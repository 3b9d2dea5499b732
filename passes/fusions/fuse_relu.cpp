// fuse_relu: let the packed op that produces a value apply relu itself.
//
//   before   %y = ipex::conv2d_run(%x, %packed, ..)    %z = aten::relu(%y)
//   after    %z = ipex::conv2d_run(%x, %packed', ..)   packed' = packed + post-op relu
//
// Works after every packed op. Declines when %y has another reader: someone needs the value before relu.
#include "fusion_rule.h"

namespace ipex::passes {
namespace {

const FusionRule rule = FusionRule("fuse_relu")
                            .match("%z = aten::relu(%y)")
                            .append("relu")
                            // In place, on a value that nobody else reads: the same thing.
                            .match("%z = aten::relu_(%y)")
                            .append("relu");
IPEX_REGISTER_FUSION(rule);

}  // namespace
}  // namespace ipex::passes
