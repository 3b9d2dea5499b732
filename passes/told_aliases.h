// Ops that may give back what they are given, though their schema says nothing of it.
#pragma once

#include "pipeline/pass.h"

namespace ipex::passes {

// TorchScript takes the result of type_as, of dropout in eval mode or of sum_to_size for new memory. Freezing, and the executor
// at every call, drop a write to what such an op was given, when all that is read of it later is the result.
//
//   before   %r = aten::type_as(%x, %y)                                     aten::zero_(%x)    %z = aten::gelu(%r)
//   after    %r = aten::type_as(%x, %y)    %t = ipex::lies_in(%r, %x)       aten::zero_(%x)    %z = aten::gelu(%t)
//
// The schema of ipex::lies_in, which gives its first argument, says it. Only where something is overwritten after the op:
// elsewhere passes know it by its name.
void tell_aliases(const std::shared_ptr<Graph>& graph);

// Where a pass has put %x for %r, nothing is left to tell.
bool remove_told_aliases(const std::shared_ptr<Graph>& graph);

}  // namespace ipex::passes
