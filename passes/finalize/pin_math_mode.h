// A math mode of the model's own, where the user asked for one.
#pragma once

#include <ipex/math_mode.h>

#include "pass.h"

namespace ipex::passes {

// Every packed op, instead of following the process, computes in this mode for good.
//
//   before   %context = ipex::linear_prepack(.., %math_mode=None)
//   after    %context = ipex::linear_prepack(.., %math_mode=2)
//
// Reports each of them, and the ops that compute in float32 in every mode. Throws when an op was packed by an earlier
// optimisation: its mode is decided.
void pin_math_mode(const std::shared_ptr<Graph>& graph, FP32MathMode mode, Report& report);

}  // namespace ipex::passes
