// A copy of a weight in bfloat16, for float32 products in math mode BF32: panels (kernels/rows_product.h) of pairs
// (kernels/numbers.h). It takes half the memory of the float32 weight, beside which it stands.
#pragma once

#include <string>

#include "ops/product/product.h"

namespace ipex::runtime {

class Bf16Weight {
 public:
  // Rounds a weight whose columns are the outputs. A dense [outputs, inputs] one has panels of a single column. `weight`
  // gives it, where `stored` does not have the copy.
  Bf16Weight(c10::function_ref<Panels()> weight, int64_t outputs, int64_t inputs, const StoredForms& stored);

  // Whether a product with this copy is faster than one in float32, for so many rows and a weight of so many elements.
  // `post_ops` are those that no kernel of ours applies, and that aten then has to.
  static bool is_worth_it(int64_t rows, int64_t elements, size_t post_ops);

  // result = steps(rows . weight^T). The result is dense. It may be where the operand of the first step is, if that adds
  // one of the result's shape.
  void multiply(const InputRows& rows, const ElementwiseSteps& steps, float* result) const;

  size_t bytes() const { return sizeof(uint32_t) * panel_size_ * panels_; }

 private:
  at::Tensor rounded(const Panels& weight, int64_t outputs) const;

  int64_t inputs_, panel_columns_, panel_size_, panels_;
  at::Tensor words_;  // of 32 bits each
};

}  // namespace ipex::runtime
