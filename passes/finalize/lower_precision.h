// A dtype of 16 bits for a float32 model, where the user asked for one.
#pragma once

#include "pass.h"

namespace ipex::passes {

// Every packed op with a float32 weight computes in this dtype; what lies between two of them, in float32.
//
//   before   %context = ipex::linear_prepack(%w, %b, ..)
//            %y = ipex::linear_run(%x, %context, [%operand], ..)
//   after    %context = ipex::linear_prepack(%w in 16 bits, %b, ..)
//            %l = ipex::lower_precision(%x, %dtype)    %o = ipex::lower_precision(%operand, %dtype)
//            %s = ipex::linear_run(%l, %context, [%o], ..)
//            %y = ipex::restore_precision(%s)
//
// fold_casts then removes the pairs of casts between neighbours. The bias stays float32: it is added before the sum is
// rounded. Runs last, so that batch_norm and constants are folded in float32, and weights are rounded once.
// Declines a weight that overflows in that dtype, and reports the ops that compute in float32 only. Throws when an op was
// packed by an earlier optimisation.
void lower_precision(const std::shared_ptr<Graph>& graph, at::ScalarType dtype, Report& report);

}  // namespace ipex::passes
