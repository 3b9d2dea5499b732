// Products of float32 rows and a packed matrix by kernels of our own (kernels/few_rows.h, kernels/many_rows.h,
// kernels/pairs_product.h). They make no primitive. A float32 matrix is read as oneDNN's primitives read it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>

#include "kernels/few_rows.h"
#include "kernels/many_rows.h"
#include "onednn/blocked_weight.h"

namespace ipex::runtime {

// With more rows, arithmetic is all that counts.
constexpr int64_t most_rows_of_a_small_product = 16;

// What the columns of rows are multiplied by first: a line of numbers for each so many rows.
struct RowGates {
  const float* first = nullptr;  // null for none
  int64_t rows_of_each = 1;

  explicit operator bool() const { return first; }
  // The rows from the first to the last as they are multiplied, into dense ones of `depth` numbers.
  void apply(const float* rows, int64_t stride, int64_t first_row, int64_t last_row, int64_t depth, float* to) const;
};

// Rows of floats, `stride` apart.
struct InputRows {
  const float* first;
  int64_t count, stride;
  RowGates gates = {};
};

// The rows of a float32 tensor's last dimension. None where they are not equally far apart, or not dense in themselves.
std::optional<InputRows> rows_of(const at::Tensor& tensor);

// Whether the kernels read such panels.
bool can_multiply(const Panels& panels);

// result = steps(rows . panels), where a row has `depth` elements. The result is dense. It may be where the operand of the
// first step is, if that adds one of the result's shape.
RowsProduct product_of(const InputRows& rows, int64_t depth, const Panels& panels, const ElementwiseSteps& steps,
                       float* result, const WeightTiles& tiles = {});

// The product in general. Of many rows and pairs, both factors are rounded to bfloat16 where the CPU is fast at that, and
// else the pairs are made floats.
void multiply(const RowsProduct& work);

// The same of more than most_few_rows rows of floats by a matrix of floats. The gates are applied to some rows at a time, which
// are in the cache then.
void multiply_gated(const RowsProduct& work, const RowGates& gates);

// Products of the same rows of floats and several matrices of floats, in one parallel region: threads share the columns as
// if the matrices stood side by side.
void multiply_side_by_side(std::span<const RowsProduct> works);

}  // namespace ipex::runtime
