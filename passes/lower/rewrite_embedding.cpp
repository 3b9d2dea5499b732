// rewrite_embedding: rows are looked up without waking threads for a few of them.
//
//   before   %y = aten::embedding(%weight, %indices, ..)
//   after    %y = ipex::look_up(%weight, %indices, ..)
//
// Runs last: an embedding whose weight is that of a linear reads the packed one, and tables become integers where that was
// asked for.
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::embedding(%weight, %indices, %padding, %scales, %sparse)")
          .becomes("ipex::look_up", {"weight", "indices", "padding", "scales", "sparse"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rewrite_embedding() { return {"rewrite_embedding", run}; }

}  // namespace ipex::passes
