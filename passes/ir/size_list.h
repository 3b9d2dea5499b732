// Lists of sizes, as reshapes take them.
#pragma once

#include <optional>
#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

// How many numbers the list has: a constant, or one that the graph makes. None for others.
std::optional<int64_t> length_of(const Value* list);

// Whether it gives its first input in the sizes of the second, a list.
bool is_reshape(const Node* node);

// Whether the number is the size of this dimension of `x`, counted from the first.
bool is_size_of(const Value* size, const Value* x, size_t dimension);

// Whether the number can't be negative: a size, or a product or quotient of these.
bool is_size(const Value* value);

// Where the size of dimension `d`, from either end, was given: in a reshape, whose result was permuted perhaps. Null where it
// was not. Nothing may change shapes in place.
Value* given_size(Value* value, int64_t d);

}  // namespace ipex::passes
