// What runs the passes.
#pragma once

#include <ipex/jit_optimize.h>

#include "pipeline/pass.h"

namespace ipex::passes {

// Every pass, in order, each once. The first call checks that their contracts allow this order.
const std::vector<Pass>& pipeline();

// Runs the pipeline on the graph of a method, up to but not including the packing of weights.
Report optimize(const std::shared_ptr<Graph>& graph, const std::string& method, const Options& options);

}  // namespace ipex::passes
