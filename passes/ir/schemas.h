// What an op's schema says of its arguments: of torch's own ops it is believed, of others it is not.
#pragma once

#include "pipeline/pass.h"

namespace ipex::passes {

// Whether the node has a schema, of a namespace whose schemas tell all writes: torch tests its own, and ours are in the op table.
bool has_true_schema(const Node* node);

// Whether the schema lets it write this argument: elements of a tensor or the list itself.
bool writes_argument(const Node* node, size_t argument);

// Whether it writes elements of a tensor: one that is an argument, or one in a list that is. A list that only grows writes none.
bool writes_elements(const c10::Argument& argument);

// Whether it keeps the argument where others find it later: puts it into a list or a dict.
bool keeps_argument(const Node* node, size_t argument);

// Whether a result may be the argument or share its memory.
bool hands_on_argument(const Node* node, size_t argument);

}  // namespace ipex::passes
