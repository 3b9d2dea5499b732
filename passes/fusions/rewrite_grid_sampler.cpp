// rewrite_grid_sampler: images are sampled by our kernel.
//
//   before   %y = aten::grid_sampler(%x, %grid, %interpolation_mode, %padding_mode, %align_corners)
//   after    %y = ipex::grid_sampler(%x, %grid, %interpolation_mode, %padding_mode, %align_corners)
//
// The op leaves to aten what its kernel does not take. Runs last, so that other passes need to know one of the two only.
#include "passes.h"
#include "spelling.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%y = aten::grid_sampler(%x, %grid, %interpolation, %padding, %align)")
          .becomes("ipex::grid_sampler", {"x", "grid", "interpolation", "padding", "align"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rewrite_grid_sampler() { return {"rewrite_grid_sampler", run}; }

}  // namespace ipex::passes
