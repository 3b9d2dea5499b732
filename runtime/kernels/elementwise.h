// What becomes of the sums that a kernel computes, before it stores them.
#pragma once

#include <cstdint>

#include "kernels/operation.h"

namespace ipex::runtime {

// How an operand is spread over the result: it has the result's shape, or one element per column, or one for all.
enum class OperandSpread { full, column, all };

struct ElementwiseStep {
  Operation operation;
  float a, b, c;  // of the operations that have numbers
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
