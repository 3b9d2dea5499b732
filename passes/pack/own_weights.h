// Weights that no layer packed are copied: an optimised model doesn't change when those of the original are written.
#pragma once

#include <torch/csrc/jit/api/module.h>

namespace ipex::passes {

// Gives the constants of the optimised module that lie in memory of the original memory of their own. They are few: norms,
// biases, and layers that are left to aten. Tables of embeddings stay shared, as they may be most of a model.
void own_weights(torch::jit::Module& optimized, const torch::jit::Module& original);

}  // namespace ipex::passes
