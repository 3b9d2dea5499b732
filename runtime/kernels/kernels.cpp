#include "kernels/kernels.h"

namespace ipex::runtime {

const Kernels& kernels() {
  static const Kernels& best = []() -> const Kernels& {
    if (__builtin_cpu_supports("avx512f")) return avx512::kernels;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::kernels;
    return portable::kernels;
  }();
  return best;
}

}  // namespace ipex::runtime
