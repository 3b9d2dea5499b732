// The values around an op with ports.
#pragma once

#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

// What its ports are about: its first result, or the pieces of that where it is a list.
std::vector<Value*> results_of(const Node* node);

// The op that gives the value, itself or as a piece of a list.
Node* maker_of(const Value* value);

// Whether the op has this port. Such ops give what their port `rounded` asks for; others, and older forms of these, may have an
// argument of the same name.
bool has_port(const Node* node, const char* name);

// Puts a list of its own in the place of that which ipex::elementwise reads.
void give_inputs(Node* elementwise, at::ArrayRef<Value*> inputs);

}  // namespace ipex::passes
