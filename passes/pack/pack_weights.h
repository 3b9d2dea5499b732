// The end of the pipeline: the prepack nodes are executed, once, and their results stored.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include "pipeline/pass.h"

namespace ipex::passes {

// Stores the contexts as attributes of the module whose method has this graph: saved, loaded and copied with it.
//
//   before   %context = ipex::convolution_prepack(%w, ...)      with constant inputs
//   after    %context = prim::GetAttr[name="packed_0"](%self)
void pack_into_attributes(const std::shared_ptr<Graph>& graph, torch::jit::Module& module);

// Stores the contexts as constants of a graph that belongs to no module, such as an executor's.
void pack_into_constants(const std::shared_ptr<Graph>& graph);

}  // namespace ipex::passes
