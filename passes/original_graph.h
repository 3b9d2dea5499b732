// Keeps the graph that the optimiser was given in the module that it returns.
#pragma once

#include <ipex/original_graph.h>

#include "pipeline/pass.h"

namespace ipex::passes {

// Gives each tensor without a name one, before the first pass. Passes hand names on, so a value of the optimised graph can
// be told to be the original's; a number is lost.
void name_tensors(Graph& graph);

// Asked before the first pass, too.
std::vector<OriginalNode> nodes_of(Graph& graph, const std::string& method);

// Asked after the last pass.
std::vector<FinalName> names_of(Graph& graph, const std::string& method);

void attach(const std::vector<OriginalNode>& original, const std::vector<FinalName>& final, torch::jit::Module& module);

}  // namespace ipex::passes
