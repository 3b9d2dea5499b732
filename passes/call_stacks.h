// The functions that inlined nodes say they come from.
#pragma once

#include "pipeline/pass.h"

namespace torch::jit {
struct Function;
}

namespace ipex::passes {

// Lets all call stacks of a graph name `holder`, whose graph it is, in the place of functions that were inlined. TorchScript
// asks them for their names when an op raises an error, and those of a frozen trace may be gone by then: the process ends.
void hold_functions(Graph& graph, torch::jit::Function& holder);

}  // namespace ipex::passes
