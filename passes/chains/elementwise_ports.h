// The values around an ipex::elementwise, of any overload.
#pragma once

#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

// What it gives: a tensor, or the pieces of its list.
std::vector<Value*> results_of(const Node* elementwise);

// The op that gives the value, itself or as a piece of a list.
Node* maker_of(const Value* value);

// Puts a list of its own in the place of that which it reads.
void give_inputs(Node* elementwise, at::ArrayRef<Value*> inputs);

}  // namespace ipex::passes
