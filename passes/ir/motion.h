// Whether an op may run later than it does.
#pragma once

#include <optional>
#include <string>

#include "pipeline/pass.h"

namespace ipex::passes {

// Whether what is read after the node may be something else than what is read before: it may write, or it sets an attribute.
bool stops_motion(const Node* node);

// Whether anything between two nodes of a block may write: then the second may see other values than the first.
bool written_between(const Node* first, const Node* second);

// Why what `node` reads can't be read at `place` instead, which comes later. Empty where it is the same there: both are in one block,
// and nothing in between may write.
std::optional<std::string> reason_against_waiting(const Node* node, const Node* place);

inline bool can_wait(const Node* node, const Node* place) { return !reason_against_waiting(node, place); }

}  // namespace ipex::passes
