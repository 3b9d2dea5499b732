// Lists of sizes, as reshapes take them.
#pragma once

#include <optional>
#include <vector>

#include "pass.h"

namespace ipex::passes {

// The elements of a list that the graph makes and nobody changes. None for others, constants included.
std::optional<std::vector<Value*>> sizes_in(Value* list);

}  // namespace ipex::passes
