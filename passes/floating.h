// Dtypes are not known when a graph is optimised; but some ops give floating point or raise.
#pragma once

#include "pass.h"

namespace ipex::passes {

// Whether the value is of a floating dtype whatever the model is given. Integers act differently: x * sigmoid(x) takes
// them, silu(x) raises.
bool is_floating(const Value* value);

}  // namespace ipex::passes
