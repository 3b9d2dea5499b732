// Reading constants out of a graph.
#pragma once

#include <optional>

#include "pass.h"

namespace ipex::passes {

// The number that `value` is. A constant tensor without dimensions counts: tracing makes one of `y * 2`, and next to a
// tensor with dimensions, whose dtype it does not change, it is one. None for bool, complex and what is not known.
std::optional<double> number(const Value* value);

}  // namespace ipex::passes
