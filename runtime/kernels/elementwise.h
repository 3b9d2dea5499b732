// What becomes of the sums that a kernel computes, before it stores them.
#pragma once

#include <cstdint>

namespace ipex::runtime {

// What becomes of a value y. `other` is an element of an operand.
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

struct ElementwiseStep {
  Elementwise operation;
  float alpha, beta;  // of the operations that have numbers
  const float* operand;
  OperandSpread spread;
};

// The bias, then the steps in order, for a result of dense rows.
struct ElementwiseSteps {
  const float* bias;  // one per column; null for none
  const ElementwiseStep* first;
  int64_t count;
  int64_t columns;
};

}  // namespace ipex::runtime
