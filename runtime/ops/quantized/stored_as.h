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

// Out of a graph or a file. Kernels write 16 bits or 32, whatever the dtype of the memory is.
inline StoredAs lowered_to(const char* op, std::optional<at::ScalarType> dtype) {
  TORCH_CHECK(!dtype || dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kFloat, op,
              ": expected dtype to be bfloat16, float16 or float32, got ", c10::toString(*dtype),
              ". If it came out of a file, that is damaged: save it again.");
  return {std::nullopt, dtype};
}

inline at::Tensor stored(const at::Tensor& y, const StoredAs& as) {
  if (as.affine) return quantize(y, *as.affine);
  return as.dtype ? lower_precision(y, *as.dtype) : y;
}

}  // namespace ipex::runtime
