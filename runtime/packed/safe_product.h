// Products of sizes that a graph or a file names.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>

namespace ipex::runtime {

// None where it does not fit.
inline std::optional<int64_t> safe_product(c10::ArrayRef<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  return product;
}

}  // namespace ipex::runtime
