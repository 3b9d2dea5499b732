// rewrite_attention: an attention that the model calls as one op runs on our kernels.
//
//   before   %y = aten::scaled_dot_product_attention(%q, %k, %v, %mask, %dropout, %is_causal, %scale, %gqa)
//   after    %y = ipex::scaled_dot_product_attention(%q, %k, %v, %mask, %dropout, %is_causal, %scale, %gqa)
//
// The op looks at each call, and leaves what our kernels don't take to aten. Runs late: other passes know one name.
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::scaled_dot_product_attention(%q, %k, %v, %mask, %dropout, %is_causal, %scale, %gqa)")
          .becomes("ipex::scaled_dot_product_attention",
                   {"q", "k", "v", "mask", "dropout", "is_causal", "scale", "gqa"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rewrite_attention() { return {"rewrite_attention", run}; }

}  // namespace ipex::passes
