// What each op of a model computes in one call: to find the op at which two models part, and to know shapes.
#pragma once

#include <ipex/export.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <utility>
#include <vector>

namespace ipex {

enum class Recorded { values, sizes };

// The outputs of the nodes of `forward`, in order, by name: tensors, or their sizes. Nodes inside branches and loops are
// left out. A value is copied where it is computed: a later op may overwrite it.
IPEX_API std::vector<std::pair<std::string, c10::IValue>> intermediates(const torch::jit::Module& module,
                                                                        std::vector<c10::IValue> inputs, Recorded what);

}  // namespace ipex
