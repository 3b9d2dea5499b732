// What TorchScript's AliasDb can't tell: some ops may return their input though their schema says nothing of it
// (type_as, einsum, atleast_2d, sum_to_size, ...), and a write to such a result is a write to the input.
//
// So a pass that depends on who writes what trusts AliasDb only about values that an op of ours or a well-known one has
// computed into memory of its own.
#pragma once

#include "pass.h"

namespace ipex::passes {

// Whether `value` is computed by an op that always gives fresh memory.
bool is_fresh(const Value* value);

// Whether running the node may write to memory that others read, blocks inside it included.
bool may_write(const Node* node);

// Whether this reader of a tensor overwrites it, or somebody a view of it that the reader makes.
bool overwrites(const Use& use);

// Whether anything between two nodes of a block may write: then what the first one read may be another by the second.
bool written_between(const Node* first, const Node* second);

// Whether anything in the graph is overwritten that is not fresh.
bool writes_to_shared_memory(const std::shared_ptr<Graph>& graph);

}  // namespace ipex::passes
