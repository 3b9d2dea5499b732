// Writes that nobody can tell from an op with a result of its own.
//
// `y.add_(1)` overwrites y, and whoever reads y, or a view that shares its memory, sees that. Where only those read it
// later who read y itself, they can read a new tensor instead: then nothing is overwritten, and passes need not ask what
// may have changed.
#pragma once

#include <optional>
#include <string>

#include "pipeline/pass.h"

namespace ipex::passes {

// Why the node, which overwrites its first input, can't give a new tensor instead. Empty where it can: the memory is
// fresh, or a view of fresh memory, and what is read of it later is the first input or what is made of it after the write.
// Pieces of one split do not share memory.
std::optional<std::string> reason_against_separating(Node* write);

// Lets `replacement`, which overwrites nothing, take the place of the write: later readers of its first input read the new
// tensor. Remembers what the op was. Destroys the write.
void separate(Node* write, Node* replacement);

// The attribute in which it remembers that, and the op in place that it replaced by this node.
Symbol was_in_place();
std::optional<Symbol> separated_op(const Node* node);

}  // namespace ipex::passes
