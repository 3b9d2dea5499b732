// Sizes of tensors that a pass does away with, asked of what they were made of:
//
//   before   %p = aten::pad(%y, %pads, ..)    %n = aten::size(%p, 1)
//   after    %n = ipex::padded_size(%y, None, %pads, 1)
//
// Rolls and norms hand sizes on, borders add to them, and a reshape was given them.
#pragma once

#include "pipeline/pass.h"

namespace ipex::passes {

// Whether the use asks for a size that can be told so.
bool asks_for_known_size(const Use& use);

// Lets those who ask for such a size of what the node gives ask what it is made of.
void ask_elsewhere(const Node* node);

}  // namespace ipex::passes
