// The graph that the optimiser was given: which ops it had, and where in the user's source each one stands.
#pragma once

#include <ipex/export.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ipex {

struct OriginalNode {
  std::string kind;                 // "aten::relu"
  std::string output;               // "input.5": reports name a node by it
  std::string module;               // "layer1.0.relu". Empty where the graph does not tell
  std::string file;                 // of the user. Empty where the graph does not tell
  int64_t line;                     // 0 with no file
  std::vector<std::string> inputs;  // the outputs of other nodes, and inputs of the graph, that it reads
  std::string method;               // of the module: "forward"
};

// The ops on tensors of the frozen module, in order. Saved and loaded with what jit_optimize returns. Empty for models
// that earlier versions saved.
IPEX_API std::vector<OriginalNode> original_graph(const torch::jit::Module& module);

// What an op of the optimised graph is called. A file keeps the ops in order, and gives their results other names.
struct FinalName {
  std::string kind;
  std::string output;
  std::string module;
  std::string method;
};

// The ops on tensors of the optimised module, in order, those inside a branch or a loop before it.
IPEX_API std::vector<FinalName> final_names(const torch::jit::Module& module);

}  // namespace ipex
