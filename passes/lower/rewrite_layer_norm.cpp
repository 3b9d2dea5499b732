// rewrite_layer_norm: a layer_norm before which nothing is added is computed by our kernel.
//
//   before   %y = aten::layer_norm(%x, %shape, %weight, %bias, %eps, %cudnn_enable)
//   after    %y = ipex::layer_norm(%x, %shape, %weight, %bias, %eps)
//
// Runs late, as rewrite_attention does. The op looks at each call, and leaves other dtypes and the like to aten.
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::layer_norm(%x, %shape, %weight, %bias, %eps, %cudnn)")
          .becomes("ipex::layer_norm", {"x", "shape", "weight", "bias", "eps"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rewrite_layer_norm() { return {"rewrite_layer_norm", run}; }

}  // namespace ipex::passes
