// Dtypes are not known when a graph is optimised; but some ops give floating point or raise.
#pragma once

#include "pipeline/pass.h"

namespace ipex::passes {

// Whether the value is of a floating dtype whatever the model is given. Integers act differently: x * sigmoid(x) takes
// them, silu(x) raises.
bool is_floating(const Value* value);

// Whether the node is a quantised layer that gives floats: nobody has asked it for 8-bit numbers. One that was packed in an
// earlier run may give either.
bool is_quantized_layer_of_floats(const Node* node);

}  // namespace ipex::passes
