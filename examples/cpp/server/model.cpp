#include "model.h"

#include <c10/core/InferenceMode.h>
#include <ipex/load.h>

#include <algorithm>
#include <stdexcept>

namespace server {
namespace {

// TorchScript gives a traceback of several lines, of which the last says what is wrong.
std::string in_one_line(const std::string& message) {
  const std::string mark = "RuntimeError: ";
  const size_t found = message.rfind(mark), begin = found == std::string::npos ? 0 : found + mark.size();
  return message.substr(begin, message.find('\n', begin) - begin);
}

void collect(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) collect(element, tensors);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) collect(element, tensors);
  } else {
    throw std::runtime_error("expected a model that returns tensors, got " + value.tagKind() + ".");
  }
}

}  // namespace

Model::Model(const std::string& path, std::vector<InputSpec> specs)
    : module_(std::make_unique<torch::jit::Module>(ipex::load(path))), specs_(std::move(specs)) {}

Model::~Model() = default;

void Model::warm_up(int64_t most_rows) {
  const auto is_free = [](const InputSpec& spec) {
    return std::count(spec.sizes.begin(), spec.sizes.end(), std::nullopt) > 1;
  };
  if (std::any_of(specs_.begin(), specs_.end(), is_free)) return;
  for (const int64_t rows : {int64_t{1}, most_rows}) {
    for (int call = 0; call < 3; ++call) run(example_inputs(specs_, rows));
  }
}

std::vector<at::Tensor> Model::run(const std::vector<at::Tensor>& inputs) {
  const c10::InferenceMode no_gradients;
  const int64_t rows = inputs[0].size(0);
  std::vector<at::Tensor> outputs;
  try {
    collect(module_->forward({inputs.begin(), inputs.end()}), outputs);
  } catch (const std::exception& error) {
    throw std::runtime_error("the model failed: " + in_one_line(error.what()));
  }
  for (const at::Tensor& output : outputs) {
    if (output.dim() == 0 || output.size(0) != rows) {
      throw std::runtime_error("expected a model that returns a row for each of its " + std::to_string(rows) +
                               " rows, got a result of another size. Its requests can't be joined.");
    }
  }
  return outputs;
}

}  // namespace server
