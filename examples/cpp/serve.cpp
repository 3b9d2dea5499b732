// serve MODEL INPUT OUTPUT [THREADS]: loads an optimised model, runs it on a saved tensor from several threads at once,
// checks that they agree, and saves the result.
#include <ipex/load.h>
#include <torch/script.h>

#include <future>
#include <iostream>

namespace {

at::Tensor load_tensor(const char* path) { return torch::jit::load(path).attr("tensor").toTensor(); }

void save_tensor(const at::Tensor& tensor, const char* path) {
  torch::jit::Module holder("Tensor");
  holder.register_buffer("tensor", tensor);
  holder.save(path);
}

int serve(const char* model_path, const char* input_path, const char* output_path, int threads) {
  const c10::InferenceMode no_gradients;
  torch::jit::Module model = ipex::load(model_path);
  const at::Tensor input = load_tensor(input_path);

  const auto handle_requests = [&model, &input] {
    const c10::InferenceMode no_gradients;
    at::Tensor output;
    for (int request = 0; request < 3; ++request) output = model.forward({input}).toTensor();
    return output;
  };
  std::vector<std::future<at::Tensor>> workers;
  for (int i = 0; i < threads; ++i) workers.push_back(std::async(std::launch::async, handle_requests));
  std::vector<at::Tensor> outputs;
  for (auto& worker : workers) outputs.push_back(worker.get());  // throws what the worker threw

  for (const at::Tensor& output : outputs) {
    if (!output.equal(outputs[0])) {
      std::cerr << "serve: two threads got different results\n";
      return 1;
    }
  }
  save_tensor(outputs[0], output_path);
  std::cout << "serve: " << threads << " threads agree on an output of " << outputs[0].sizes() << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::cerr << "usage: serve MODEL INPUT OUTPUT [THREADS]\n";
    return 2;
  }
  try {
    return serve(argv[1], argv[2], argv[3], argc == 5 ? std::stoi(argv[4]) : 2);
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  return 1;
}
