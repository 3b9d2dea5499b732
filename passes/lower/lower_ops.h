// What the table of lower_ops says of an op.
#pragma once

#include <string>

#include "pipeline/pass.h"

namespace ipex::passes {

// Whether a row makes this op of ours: `disable` takes its name too.
bool is_op_of_lowering(const std::string& name);

// Whether the node is of such an op, but for norms that take post-ops.
bool is_lowered(const Node* node);

// Whether a row without conditions takes the node.
bool is_to_lower(const Node* node);

}  // namespace ipex::passes
