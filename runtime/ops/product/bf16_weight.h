// A copy of a linear's weight in bfloat16, for products with few rows: see kernels/bf16_product.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "onednn/primitive.h"

namespace ipex::runtime {

class Bf16Weight {
 public:
  // Rounds a weight whose columns are the outputs. A dense [outputs, inputs] one has panels of a single column.
  Bf16Weight(const Panels& weight, int64_t outputs, int64_t inputs);

  // Whether the product of an input with this many rows and a weight of this many elements waits for memory, so long
  // that it makes up for post-ops that are not fused.
  static bool is_worth_it(int64_t rows, int64_t elements, size_t post_ops);

  // result = input . weight^T + bias, for dense tensors and few rows. `bias` may be undefined.
  void multiply(const at::Tensor& input, const at::Tensor& bias, const at::Tensor& result) const;

 private:
  int64_t outputs_, inputs_, tiles_;
  std::unique_ptr<uint32_t[]> data_;
};

}  // namespace ipex::runtime
