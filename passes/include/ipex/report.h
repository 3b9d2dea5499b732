// What the optimiser did with each node of a model, and why.
#pragma once

#include <ipex/export.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace ipex {

struct Decision {
  std::string pass;    // "fuse_activation"
  std::string node;    // "aten::relu in layer1.0.relu (%input.5)"
  bool applied;        // false: the node was left as it is
  std::string reason;  // why it was left, or what became of it
  std::string method;  // of the module: "forward"
  std::string name;    // of the node's result: "input.5"
  std::string module;  // that the user wrote: "layer1.0.relu"; empty where that is not known
  std::string into;    // what stands for it from then on, by the name it had: another node, or itself as another op
};

using Report = std::vector<Decision>;

// The decisions recorded in a module that jit_optimize returned; saved and loaded with it.
// Throws c10::Error for any other module.
IPEX_API Report explain(const torch::jit::Module& module);

}  // namespace ipex
