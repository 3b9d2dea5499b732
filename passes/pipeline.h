// The order of the passes, and what runs them.
#pragma once

#include <ipex/jit_optimize.h>

#include "pass.h"

namespace ipex::passes {

// Every pass, in order.
const std::vector<Pass>& pipeline();

// Runs the pipeline on a graph, up to but not including the packing of weights.
void optimize(const std::shared_ptr<Graph>& graph, const Options& options, Report& report);

}  // namespace ipex::passes
