// Sums that can be taken in the pass over memory that makes their terms.
#pragma once

#include "pipeline/pass.h"

namespace ipex::passes {

// Whether the node is a sum or a mean over dimensions.
bool is_sum(const Node* node);

// Why no op of ours can take the sum, whatever it sums; null where one can.
const char* reason_to_sum_elsewhere(const Node* sum);

// Why the terms of a sum have to be in memory; null where they need not.
const char* reason_to_store_terms(const Node* sum);

// Whether all that becomes of the value is a sum, for which it need not be in memory.
bool is_only_summed(const Value* value);

}  // namespace ipex::passes
