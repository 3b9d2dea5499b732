// Two numbers as a word of the format NumberFormat::pairs (kernels/numbers.h).
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace ipex::runtime {

inline uint32_t pair_of(float first, float second) {
  return c10::BFloat16(first).x | uint32_t{c10::BFloat16(second).x} << 16;
}

}  // namespace ipex::runtime
