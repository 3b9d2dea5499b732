// A TorchScript model that returns a row for each row of its inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "signature.h"

namespace torch::jit {
struct Module;  // its header takes long to compile
}

namespace server {

class Model {
 public:
  // Throws what ipex::load throws.
  Model(const std::string& path, std::vector<InputSpec> specs);
  ~Model();

  // Calls the model with one row and with `most_rows`, until weights are packed and TorchScript has compiled. So a model
  // that does not take what was declared, or mixes rows, is found out before there are clients. Does nothing where a
  // size other than the batch is free.
  void warm_up(int64_t most_rows);

  void check(const std::vector<at::Tensor>& inputs) const { check_inputs(specs_, inputs); }

  // May be called from many threads at once. Throws std::runtime_error, with what the model said in one line.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);

 private:
  const std::unique_ptr<torch::jit::Module> module_;
  const std::vector<InputSpec> specs_;
};

}  // namespace server
