// What a C++ user does with libipex, each as a test of its own: consumer TEST.
#include <ATen/Parallel.h>
#include <ipex/aot.h>
#include <ipex/isa.h>
#include <ipex/jit_optimize.h>
#include <ipex/load.h>
#include <ipex/memory.h>
#include <ipex/stream_pool.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>

namespace {

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

torch::jit::Module linear_relu() {
  torch::jit::Module module("Model");
  module.register_parameter("weight", torch::randn({5, 6}), false);
  module.define("def forward(self, x):\n  return torch.relu(torch.linear(x, self.weight))\n");
  return module;
}

bool mentions_ipex(const torch::jit::Graph& graph) { return graph.toString().find("ipex::") != std::string::npos; }

void optimise() {
  torch::jit::Module module = linear_relu();
  require(ipex::jit_optimize(module).parameters().size() == 0, "a module without `training` was not frozen");
  torch::jit::Module optimized = ipex::jit_optimize(module);
  const at::Tensor x = torch::randn({3, 6});
  require(mentions_ipex(*optimized.get_method("forward").graph()), "nothing was optimised");
  require(!mentions_ipex(*module.get_method("forward").graph()), "the original was changed");
  require(module.forward({x}).toTensor().allclose(optimized.forward({x}).toTensor(), 1e-5, 1e-5), "wrong values");
  require(!ipex::explain(optimized).empty(), "no report");
  require(!ipex::pass_names().empty(), "no passes");
}

void training() {
  torch::jit::Module module = linear_relu();
  module.register_attribute("training", c10::BoolType::get(), true);
  try {
    ipex::jit_optimize(module);
  } catch (const c10::Error& error) {
    require(std::string(error.what()).find("expected a module in eval mode") != std::string::npos, error.what());
    return;
  }
  throw std::runtime_error("a module in training mode was accepted");
}

void bad_file() {
  std::ofstream("truncated.pt") << "PK";
  try {
    ipex::load("truncated.pt");
  } catch (const c10::Error& error) {
    require(std::string(error.what()).find("no complete archive") != std::string::npos, error.what());
    return;
  }
  throw std::runtime_error("a truncated file was accepted");
}

void limit() {
  ipex::isa::limit(ipex::isa::Level::AVX2);
  require(ipex::isa::has_avx2() && !ipex::isa::has_avx512(), "the limit does not hold");
  ipex::jit_optimize(linear_relu());
  require(ipex::isa::onednn() == "avx2", "the limit does not reach oneDNN");
  try {
    ipex::isa::limit(ipex::isa::Level::AVX2);
  } catch (const c10::Error& error) {
    require(std::string(error.what()).find("kernels ran at 'avx2'") != std::string::npos, error.what());
    return;
  }
  throw std::runtime_error("a limit was accepted after the first use");
}

void memory() {
  try {
    ipex::memory_snapshot(at::Device(at::kCUDA, 0));
  } catch (const c10::Error& error) {
    require(std::string(error.what()).find("expected a CPU, got cuda:0") != std::string::npos, error.what());
    return;
  }
  throw std::runtime_error("the CPU's memory was given for that of another device");
}

// What the primitives of the only packed op compute in, the last used first.
std::string primitive_math_mode(torch::jit::Module& optimized) {
  const torch::NoGradGuard no_gradients;
  optimized.forward({torch::randn({1, 3, 4, 5})});
  auto context = optimized.attr("packed_0").toObject();
  torch::jit::Stack stack{context};
  context->type()->getMethod("primitive_math_modes").run(stack);
  return stack.back().toListRef().front().toStringRef();
}

void math_mode() {
  using ipex::FP32MathMode;
  require(ipex::get_fp32_math_mode() == FP32MathMode::FP32, "not FP32 at first");
  require(!ipex::set_fp32_math_mode(FP32MathMode::TF32), "TF32 was accepted");
  require(ipex::get_fp32_math_mode() == FP32MathMode::FP32, "TF32 changed the mode");
  ipex::Options options;
  options.fp32_math_mode = FP32MathMode::FP32;
  torch::jit::Module model("Model");  // which is oneDNN's to compute: its primitives tell their mode
  model.register_parameter("weight", torch::randn({3, 4, 2, 2}), false);
  model.define("def forward(self, x):\n  return torch.conv_transpose2d(x, self.weight)\n");
  ipex::jit_optimize(model, options).save("fp32.pt");
  torch::jit::Module follows = ipex::jit_optimize(model), stays = ipex::load("fp32.pt");
  require(primitive_math_mode(follows) == "FP32", "it did not start in FP32");
  require(ipex::set_fp32_math_mode(FP32MathMode::BF32), "BF32 was refused");
  require(primitive_math_mode(follows) == "BF32", "it did not follow the process");
  require(primitive_math_mode(stays) == "FP32", "it did not keep its own mode");
}

// A residual that is given away may become the result. One that is kept is not touched, nor is memory that was only lent.
void residual() {
  torch::jit::Module module("Model");
  module.register_parameter("weight", torch::randn({8, 8, 3, 3}), false);
  module.define(R"(
    def forward(self, x, residual):
      return torch.relu(torch.conv2d(x, self.weight, None, [1, 1], [1, 1]) + residual)
  )");
  torch::jit::Module optimized = ipex::jit_optimize(module);
  const torch::NoGradGuard no_gradients;
  const auto channels_last = at::MemoryFormat::ChannelsLast;
  const at::Tensor x = torch::randn({2, 8, 5, 6}).contiguous(channels_last);
  const at::Tensor kept = torch::randn({2, 8, 5, 6}).contiguous(channels_last), copy = kept.clone();
  const at::Tensor expected = module.forward({x, kept}).toTensor();
  std::vector<float> buffer(kept.const_data_ptr<float>(), kept.const_data_ptr<float>() + kept.numel());
  const std::vector<float> lent = buffer;
  for (int call = 0; call < 4; ++call) {
    require(optimized.forward({x, kept}).toTensor().allclose(expected, 1e-4, 1e-4), "wrong with one that is kept");
    require(kept.equal(copy), "one that is kept was overwritten");

    at::Tensor borrowing = at::from_blob(buffer.data(), kept.sizes(), kept.strides());
    std::vector<c10::IValue> inputs{x, std::move(borrowing)};
    const at::Tensor second = optimized.forward(std::move(inputs)).toTensor();
    require(second.allclose(expected, 1e-4, 1e-4), "wrong with memory that was lent");
    require(buffer == lent && second.const_data_ptr() != buffer.data(), "memory that was lent was overwritten");

    at::Tensor given = kept.clone();
    const void* memory = given.const_data_ptr();
    std::vector<c10::IValue> gift{x, std::move(given)};
    const at::Tensor third = optimized.forward(std::move(gift)).toTensor();
    require(third.allclose(expected, 1e-4, 1e-4), "wrong with one that was given away");
    require(third.const_data_ptr() == memory, "one that was given away was not reused");
  }
}

int64_t cached_primitives(const torch::jit::Module& optimized) {
  const auto context = optimized.attr("packed_0").toObject();
  torch::jit::Stack stack{context};
  context->type()->getMethod("cached_primitives").run(stack);
  return stack.back().toInt();
}

// How many calls of four, made by the threads of a team, give another result than `expected`.
int wrong_calls_of_a_team(torch::jit::Module& model, const std::vector<c10::IValue>& inputs,
                          const at::Tensor& expected) {
  std::atomic<int> wrong = 0;
#pragma omp parallel for num_threads(4)
  for (int call = 0; call < 4; ++call) {
    const torch::NoGradGuard no_gradients;
    if (!model.forward(inputs).toTensor().allclose(expected, 1e-4, 1e-4)) ++wrong;
  }
  return wrong;
}

// A server may call models from the threads of its own team. Primitives are made for a number of threads: those that the
// model has from outside are for several, and in the team each call has one.
void parallel_region() {
  const torch::NoGradGuard no_gradients;
  at::set_num_threads(4);
  const std::map<std::string, std::pair<std::string, std::vector<int64_t>>> bodies{
      {"linear", {"torch.mish(torch.linear(x, self.square))", {96, 256}}},
      {"own linear", {"torch.relu(torch.linear(x, self.square))", {96, 256}}},
      {"few rows", {"torch.mish(torch.linear(x, self.square))", {3, 256}}},
      {"matmul", {"torch.matmul(x, x.transpose(-1, -2)) * 2.0", {6, 200, 64}}},
      {"convolution", {"torch.conv2d(x, self.windows, None, [2, 2], [1, 1])", {2, 32, 40, 40}}},
      {"winograd", {"torch.conv2d(x, self.windows, None, [1, 1], [1, 1])", {2, 32, 40, 40}}},
      {"depthwise", {"torch.conv2d(x, self.depthwise, None, [1, 1], [1, 1], [1, 1], 32)", {2, 32, 40, 40}}},
      {"transposed", {"torch.conv_transpose2d(x, self.windows, None, [2, 2])", {2, 64, 20, 20}}},
  };
  for (const auto& [name, body] : bodies) {
    torch::jit::Module module("Model");
    module.register_parameter("square", torch::randn({256, 256}) / 16, false);
    module.register_parameter("windows", torch::randn({64, 32, 3, 3}) / 16, false);
    module.register_parameter("depthwise", torch::randn({32, 1, 3, 3}), false);
    module.define("def forward(self, x):\n  return " + body.first + "\n");
    torch::jit::Module optimized = ipex::jit_optimize(module);
    const std::vector<c10::IValue> inputs{torch::randn(body.second)};
    const at::Tensor expected = module.forward(inputs).toTensor();
    const auto fits = [&] { return optimized.forward(inputs).toTensor().allclose(expected, 1e-4, 1e-4); };
    require(fits(), ("wrong outside, at first: " + name).c_str());
    const int64_t outside = cached_primitives(optimized);
    require(wrong_calls_of_a_team(optimized, inputs, expected) == 0, ("wrong inside: " + name).c_str());
    require(cached_primitives(optimized) == 2 * outside,
            ("a primitive for several threads ran on one: " + name).c_str());
    require(fits(), ("wrong outside, later: " + name).c_str());

    torch::jit::Module second = ipex::jit_optimize(module);
    require(wrong_calls_of_a_team(second, inputs, expected) == 0, ("wrong where made inside: " + name).c_str());
    require(second.forward(inputs).toTensor().allclose(expected, 1e-4, 1e-4),
            ("made inside, wrong outside: " + name).c_str());
    require(cached_primitives(second) == 2 * outside, ("a primitive for one thread ran on several: " + name).c_str());
  }
}

// A file with packed weights is written and loaded, and one that is cut short is refused.
void ahead_of_time() {
  const torch::NoGradGuard no_gradients;
  torch::jit::Module optimized = ipex::jit_optimize(linear_relu());
  const at::Tensor x = torch::randn({3, 6}), expected = optimized.forward({x}).toTensor();
  ipex::AotSaveOptions options;
  options.example_inputs = {{x}};
  options.isa = ipex::isa::current();
  ipex::aot_save(optimized, "model.ipex", options);
  const ipex::AotFile file = ipex::aot_describe("model.ipex");
  require(file.packed_weights == 1 && file.packed_again.empty(), "the file does not hold the weight");

  const int64_t mapped = ipex::mapped_bytes(), allocated = ipex::memory_allocated();
  {
    torch::jit::Module loaded = ipex::aot_load("model.ipex");
    require(ipex::mapped_bytes() > mapped, "nothing is mapped");
    require(loaded.forward({x}).toTensor().equal(expected), "wrong values");
    require(ipex::memory_allocated() == allocated, "something was packed");
  }
  require(ipex::mapped_bytes() == mapped, "the file is still mapped");

  std::ifstream whole("model.ipex", std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(whole)), std::istreambuf_iterator<char>());
  std::ofstream("short.ipex", std::ios::binary) << content.substr(0, content.size() - 1);
  try {
    ipex::aot_load("short.ipex");
  } catch (const c10::Error& error) {
    require(std::string(error.what()).find("The file is damaged") != std::string::npos, error.what());
    return;
  }
  throw std::runtime_error("a file that is cut short was accepted");
}

// Streams share one module. Errors arrive in futures, and the caller's threads stay as they are.
void stream_pool() {
  const torch::NoGradGuard no_gradients;
  torch::jit::Module optimized = ipex::jit_optimize(linear_relu());
  const int threads = at::get_num_threads();
  ipex::StreamPool pool(optimized, {.streams = 2, .threads_per_stream = 2, .max_queue = 3});
  require(pool.plan().streams == 2 && pool.plan().threads_per_stream == 2, "another plan than was asked for");
  std::vector<std::pair<at::Tensor, std::future<c10::IValue>>> answers;
  for (int64_t i = 0; i < 50; ++i) {
    const at::Tensor x = torch::randn({1 + i % 5, 6});
    answers.emplace_back(optimized.forward({x}).toTensor(), pool.submit({x}));
  }
  for (auto& [expected, answer] : answers) require(answer.get().toTensor().equal(expected), "wrong values");
  require(at::get_num_threads() == threads, "the caller's number of threads changed");
  try {
    pool.submit({torch::randn({2, 7})}).get();
    throw std::runtime_error("an input of a wrong size was accepted");
  } catch (const std::exception& error) {
    require(std::string(error.what()).find("expected input with last dimension 6") != std::string::npos, error.what());
  }
  std::future<c10::IValue> last = pool.submit({torch::randn({2, 6})});
  pool.close();
  require(last.get().isTensor(), "what was queued was not answered");
  try {
    pool.submit({torch::randn({2, 6})});
  } catch (const c10::Error& error) {
    require(std::string(error.what()).find("expected an open pool") != std::string::npos, error.what());
    return;
  }
  throw std::runtime_error("a closed pool took a request");
}

bool executed_with_ipex() {
  torch::jit::Module module = linear_relu();
  module.register_attribute("training", c10::BoolType::get(), false);
  torch::jit::Module frozen = torch::jit::freeze(module);
  const torch::NoGradGuard no_gradients;
  for (int call = 0; call < 3; ++call) frozen.forward({torch::randn({3, 6})});
  return mentions_ipex(*torch::jit::lastExecutedOptimizedGraph());
}

void register_passes() {
  require(!executed_with_ipex(), "on before registering");
  ipex::register_jit_passes();
  require(executed_with_ipex(), "off after registering");
  ipex::unregister_jit_passes();
  require(!executed_with_ipex(), "on after unregistering");
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, void (*)()> tests{{"optimise", optimise},
                                                {"training", training},
                                                {"bad_file", bad_file},
                                                {"limit", limit},
                                                {"memory", memory},
                                                {"math_mode", math_mode},
                                                {"register", register_passes},
                                                {"residual", residual},
                                                {"parallel_region", parallel_region},
                                                {"aot", ahead_of_time},
                                                {"stream_pool", stream_pool}};
  try {
    require(argc == 2 && tests.count(argv[1]), "usage: consumer TEST");
    tests.at(argv[1])();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
