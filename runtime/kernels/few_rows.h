// A few rows of float32 numbers times a matrix, and elementwise steps on the sums, on plain pointers. The matrix lies in
// panels: some columns side by side, for the whole depth, as oneDNN packs the weights of a matmul. So it is read once,
// from one end to the other, for all rows.
//
//   panels[panel][depth][panel_columns]    a last panel that is not full, and a depth, may be padded with anything
#pragma once

#include <cstdint>

namespace ipex::runtime {

// In registers.
constexpr int64_t most_vectors_of_a_panel = 4;
// With more, arithmetic is all that counts.
constexpr int64_t most_few_rows = 16;

// Panels are computed in groups of this many, always in the same ones, so that threads do not change a result.
constexpr int64_t panels_of_a_group(int64_t rows) { return rows == 1 ? 4 : 2; }

// What becomes of a sum y. `other` is an element of an operand.
enum class Elementwise {
  relu,
  leaky_relu,
  clip,
  linear,
  abs,
  square,
  hardsigmoid,
  hardswish,
  sigmoid,
  silu,
  tanh,
  gelu_erf,
  gelu_tanh,
  // These have an operand.
  add,
  sub,
  mul,
  div
};

// How an operand is spread over the result: it has the result's shape, or one element per column, or one for all.
enum class OperandSpread { full, column, all };

struct FewRowsStep {
  Elementwise operation;
  float alpha, beta;  // of the operations that have numbers
  const float* operand;
  OperandSpread spread;
};

struct FewRowsProduct {
  const float* rows;  // dense
  int64_t row_count;  // 1 to most_few_rows
  int64_t depth;
  const float* panels;
  int64_t panel_columns;  // a multiple of the register's width
  int64_t panel_size;     // elements from one panel to the next
  const float* bias;      // one per column, added to the sums; null for none
  const FewRowsStep* steps;
  int64_t step_count;
  float* result;  // dense
  int64_t columns;
};

struct FewRowsKernels {
  int64_t width;
  void (*multiply)(const FewRowsProduct&, int64_t first_group, int64_t last_group);
};

}  // namespace ipex::runtime
