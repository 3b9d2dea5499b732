// Casts between layers of 16 bits and what stands between them in float32, which can be part of a pass over memory.
#pragma once

#include <optional>

#include "pipeline/pass.h"

namespace ipex::passes {

// The cast to float32 of what a layer of 16 bits gave, where the value is that, or is it moved for one reader alone. Null for
// others.
Node* restoring_cast(const Value* value);

// The same value without the cast, for that reader.
Value* without_cast(Value* value);

// The dtype to which all readers of the value cast it, for layers of 16 bits. None where one of them does not.
std::optional<at::ScalarType> dtype_of_all_readers(const Value* value);

// Readers of those casts read the value itself, which has their dtype by now.
void remove_casts_of(Value* value);

}  // namespace ipex::passes
