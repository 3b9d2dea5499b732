// Views by sizes ask for strides that a value in another layout may not have: reshape gives the same elements of any.
//
//   before   %v = aten::view(%y, %sizes)
//   after    %v = aten::reshape(%y, %sizes)
//
// and of an op that begins with such a view (ipex::image_weights_convolution) its argument.
#pragma once

#include "pipeline/pass.h"

namespace ipex::passes {

// Loosens all views of the values, and of what has strides from theirs. Only where nobody sees the strides
// (stride_readers.h), or writes to the memory: a reshape may be a copy.
void loosen_views(const std::vector<Value*>& values);

}  // namespace ipex::passes
