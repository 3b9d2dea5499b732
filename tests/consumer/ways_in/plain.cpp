// plain MODEL INPUT OUTPUT [LIBRARY]: a program of somebody who knows libtorch and has not heard of ipex. Runs a model on
// a saved tensor and saves the result. Loads LIBRARY at run time, as servers load what their configuration names.
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <iostream>

// Called by plain_main.cpp, and by host.cpp, which loads this as a library.
extern "C" int run(int argc, char** argv) {
  if (argc < 4) return 2;
  if (argc > 4 && !dlopen(argv[4], RTLD_NOW)) {
    std::cerr << dlerror() << '\n';
    return 1;
  }
  try {
    const c10::InferenceMode no_gradients;
    torch::jit::Module model = torch::jit::load(argv[1]);
    const at::Tensor input = torch::jit::load(argv[2]).attr("tensor").toTensor();
    torch::jit::Module holder("Tensor");
    holder.register_buffer("tensor", model.forward({input}).toTensor());
    holder.save(argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
