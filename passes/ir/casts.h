// Casts: nodes that change the dtype of a tensor and nothing else.
#pragma once

#include <optional>

#include "pipeline/pass.h"

namespace ipex::passes {

struct Cast {
  Value* source;
  at::ScalarType dtype;
  // Whether the result has this dtype whatever the source is. The casts of ipex::lower_precision leave what is not
  // of the dtype that they are made for.
  bool is_unconditional;
};

// The cast that computes `value`: aten::to with a constant dtype, ipex::lower_precision, ipex::restore_precision. None
// for what may also copy, move to another device or change the layout.
std::optional<Cast> cast_of(const Value* value);

// Whether the op moves or chooses elements of one tensor, which it gives the same in any floating dtype.
bool only_moves(const Node* node);

}  // namespace ipex::passes
