// What a list holds.
//
// A list in TorchScript is a reference: who appends to it, or sets an element, changes it for everybody. Where lists_are_values holds,
// a cast stands between each such list and its users, so a pass that sees a prim::ListConstruct may read its elements: nobody
// changes them.
#pragma once

#include <optional>
#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

// Whether the node makes a list of known elements.
bool makes_list(const Node* node);

// The elements of a list that the graph makes. None for constants, and where the list may change.
std::optional<std::vector<Value*>> elements_of(const Value* list);

// The same where the list has one user.
std::optional<std::vector<Value*>> own_elements_of(const Value* list);

// Whether the list changes and stands apart: a cast that does nothing is its only user.
bool is_held(const Value* list);

// Whether the graph may change the list after it is made: by a write, or through a container or an op that may keep it.
// What the caller does with a list that it gets comes after all uses.
bool may_change(const Value* list);

}  // namespace ipex::passes
