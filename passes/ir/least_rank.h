// How many dimensions a tensor is known to have.
#pragma once

#include "pipeline/pass.h"

namespace ipex::passes {

// At least this many, whatever the graph is called with: any call in which the tensor has fewer has raised an error where
// the value was computed. From the sizes that it was given, or the dimensions that an op named.
int64_t least_rank(const Value* value);

}  // namespace ipex::passes
