// What happens to a module before its graph is looked at.
#pragma once

#include <torch/csrc/jit/api/module.h>

namespace ipex::passes {

// A frozen copy of `module`: its weights are constants of its graphs. Methods, and attributes that are plain values,
// stay; `module` is not changed. Throws when it is in training mode or has no forward.
torch::jit::Module frozen_copy(const torch::jit::Module& module);

}  // namespace ipex::passes
