// rewrite_addmm: a product that adds to a matrix stays one op.
//
//   before   %y = aten::addmm(%term, %x, %w, %beta, %alpha)
//   after    %y = ipex::addmm(%term, %x, %w, %beta, %alpha)
//
// TorchScript splits aten's into mm and add, and joins them again only where it knows the dtypes of all: a pass over
// memory more, and another dtype under autocast, which casts products but not sums.
//
// Runs last: with constant factors it is a linear by then.
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  static const std::vector<Spelling> spellings{Spelling("%y = aten::addmm(%term, %x, %w, %beta, %alpha)")
                                                   .becomes("ipex::addmm", {"term", "x", "w", "beta", "alpha"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rewrite_addmm() { return {"rewrite_addmm", run}; }

}  // namespace ipex::passes
