// What a result of float32 becomes as it is stored: 8-bit numbers, or numbers of 16 bits, as the next layer reads it. A row or a
// block is rounded while it is near.
#pragma once

#include <optional>

#include "ops/layout/precision.h"
#include "ops/quantized/affine.h"

namespace ipex::runtime {

// Nothing else where both are missing.
struct StoredAs {
  std::optional<Affine> affine;
  std::optional<at::ScalarType> dtype;
};

inline at::Tensor stored(const at::Tensor& y, const StoredAs& as) {
  if (as.affine) return quantize(y, *as.affine);
  return as.dtype ? lower_precision(y, *as.dtype) : y;
}

}  // namespace ipex::runtime
