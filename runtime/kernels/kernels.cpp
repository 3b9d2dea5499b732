#include "kernels/kernels.h"

#include "isa/isa.h"

namespace ipex::runtime {
namespace {

using isa::Level;

struct Compiled {
  Level level;
  const Kernels& kernels;
};

// From the best down.
const Compiled compiled[] = {
    {Level::AVX512, avx512::kernels}, {Level::AVX2, avx2::kernels}, {Level::DEFAULT, portable::kernels}};

}  // namespace

const Kernels& kernels() {
  static const Kernels& best = []() -> const Kernels& {
    const Level level = isa::level_in_use();
    const Compiled* first = compiled;
    while (first->level > level) ++first;
    return first->kernels;
  }();
  return best;
}

}  // namespace ipex::runtime

namespace ipex::isa {

Level highest_binary() { return runtime::compiled[0].level; }

}  // namespace ipex::isa
