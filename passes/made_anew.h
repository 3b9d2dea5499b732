// What a graph makes of constants alone, and somebody may write, has to be made anew at each call.
//
// Freezing, our passes and TorchScript's executor compute such a value once: what is written to it is there at the next
// call. Torch's alias analysis, which is to keep them from it, does not see a write to `z.type_as(x)`, nor a caller's.
// So one of the constants that it is made of is read from the module, whose attributes nobody takes for constants.
//
//   before   %z = aten::mul(%constant, %two)                     %z is returned
//   after    %c = prim::GetAttr[name="constant_0"](%self)        %z = aten::mul(%c, %two)
//
// A constant that is written itself, as a trace has tensors that are no buffers, becomes an attribute in the same way.
#pragma once

#include <string>
#include <vector>

#include "ir/storages.h"

namespace ipex::passes {

// In a trace, torch.tensor(..) of the model's code is a constant. One that may be written becomes a copy of it.
void copy_written_literals(Graph& graph);

// Returns the names of the attributes that it has added to the module: they are to stay what they are.
std::vector<std::string> make_anew(torch::jit::Module& module, const Storages& storages);

}  // namespace ipex::passes
