// many_threads MODEL THREADS CALLS: calls one module from many threads, with inputs of many shapes, and compares each
// result with that of a single thread, bit for bit. Memory must not grow.
//
// More shapes than a context keeps primitives: some are made anew while others run. OMP_NUM_THREADS is for each caller; the
// threads that the largest inputs have work for share the pool.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <ipex/load.h>
#include <ipex/memory.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iostream>
#include <limits>
#include <thread>
#include <vector>

namespace {

#ifdef __SANITIZE_THREAD__  // which keeps a history of its own
constexpr int64_t MOST_GROWTH = int64_t{4} << 30;
#else
constexpr int64_t MOST_GROWTH = 8 << 20;
#endif
constexpr int64_t CHANNELS = 4;

std::vector<at::Tensor> inputs_of_many_shapes() {
  std::vector<at::Tensor> inputs;
  for (const int64_t images : {1, 2, 3}) {
    for (const int64_t height : {1, 3, 40}) {
      for (const int64_t width : {2, 5, 40}) inputs.push_back(at::randn({images, CHANNELS, height, width}));
    }
  }
  return inputs;
}

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

class Calls {
 public:
  // What is expected comes from a copy, so that the threads find the module as it was loaded: they pack its weights.
  explicit Calls(const char* path) : model_(ipex::load(path)) {
    const c10::InferenceMode no_gradients;
    torch::jit::Module copy = ipex::load(path);
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    for (const at::Tensor& input : inputs_) expected_.push_back(copy.forward({input}).toTensor());
    at::set_num_threads(threads);
  }

  // Each thread begins with another input. Returns how many results were wrong.
  int64_t from(int threads, int64_t calls) {
    std::atomic<int64_t> wrong = 0;
    std::vector<std::thread> team;
    for (int thread = 0; thread < threads; ++thread) {
      team.emplace_back([this, thread, calls, &wrong] {
        const c10::InferenceMode no_gradients;
        for (int64_t call = 0; call < calls; ++call) {
          const size_t i = static_cast<size_t>(thread + call * (1 + thread % 5)) % inputs_.size();
          if (!model_.forward({inputs_[i]}).toTensor().equal(expected_[i])) ++wrong;
        }
      });
    }
    for (std::thread& thread : team) thread.join();
    return wrong;
  }

 private:
  torch::jit::Module model_;
  const std::vector<at::Tensor> inputs_ = inputs_of_many_shapes();
  std::vector<at::Tensor> expected_;
};

int test(const char* path, int threads, int64_t calls) {
  Calls all(path);
  int64_t wrong = all.from(threads, calls / 4);
  const int64_t allocated = ipex::memory_allocated();
  // What is lost at each call is lost in both parts; an arena more that malloc makes for a thread, in one.
  int64_t growth = std::numeric_limits<int64_t>::max();
  for (const int64_t part : {calls * 3 / 8, calls * 3 / 8}) {
    const int64_t resident = resident_bytes();
    wrong += all.from(threads, part);
    growth = std::min(growth, resident_bytes() - resident);
  }
  const int64_t held = ipex::memory_allocated() - allocated;
  std::cout << "many_threads: " << threads << " threads, " << calls << " calls each, " << wrong << " wrong, "
            << growth / 1024 << " KiB more in memory, ipex holds " << held << " bytes more\n";
  return wrong == 0 && growth < MOST_GROWTH && held == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: many_threads MODEL THREADS CALLS\n";
    return 2;
  }
  try {
    return test(argv[1], std::stoi(argv[2]), std::stoll(argv[3]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
