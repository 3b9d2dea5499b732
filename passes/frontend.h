// What happens to a module before its graph is looked at.
#pragma once

#include <torch/csrc/jit/api/module.h>

namespace ipex::passes {

// A frozen copy of `module`: its weights are constants of its graphs. Methods, and attributes that are plain values,
// stay; `module` is not changed. Throws when it is in training mode or has no forward.
torch::jit::Module frozen_copy(const torch::jit::Module& module);

// Stands by while a copy is optimised. Where that ends with an exception, the graphs of the copy lose their weights: TorchScript keeps
// them as long as the original's code, which in Python is for good.
class Unfinished {
 public:
  explicit Unfinished(const torch::jit::Module& copy);
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

 private:
  const torch::jit::Module copy_;
  const int exceptions_before_;
};

}  // namespace ipex::passes
