// Calls of ops of ours whose schemas have defaults.
#pragma once

#include "pipeline/pass.h"

namespace ipex::passes {

// Inserts a call where the graph inserts nodes. Arguments behind the given ones have their defaults.
Node* insert_call(Graph& graph, const c10::OperatorName& op, at::ArrayRef<Value*> given);

// Whether the op has an argument of this name.
bool has_argument(const Node* node, const char* name);

}  // namespace ipex::passes
