// Reading constants out of a graph, and putting them in. TorchScript holds a tensor as a constant only where it has a storage:
// not an undefined, sparse or nested one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

// The number that `value` is. A constant tensor without dimensions counts: tracing makes one of `y * 2`, and next to a
// tensor with dimensions, whose dtype it does not change, it is one. None for bool, complex and what is not known.
std::optional<double> number(const Value* value);

// The integer that `value` is. A constant tensor is none.
std::optional<int64_t> constant_integer(const Value* value);

// The integers that a list has: a constant, or one that the graph makes of constants.
std::optional<std::vector<int64_t>> integers_of(const Value* list);

// Whether `value` is a constant True, or False; or a constant list of these integers.
bool is_true(const Value* value);
bool is_false(const Value* value);
bool is_list_of(const Value* value, const std::vector<int64_t>& integers);

// Whether both are one value, or constants that are equal. Constant tensors are not compared.
bool is_same_argument(const Value* a, const Value* b);

// A number as text, as post-ops have their arguments: "2" for an integer, "2.0" for a float. With its sign changed where
// `negative` asks for it. None for NaN as well, of which each op has its own idea.
std::optional<std::string> number_text(const Value* value, bool negative);

// A constant at the beginning of the graph that others may read too: None, a flag, numbers, but no tensor. Every pass walks
// over every node, so a constant for each argument of each layer would be most of what they walk over. To take a reader
// away takes a look at all readers, so they are few each.
Value* shared_constant(Graph& graph, const c10::IValue& value);

}  // namespace ipex::passes
