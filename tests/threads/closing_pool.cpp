// closing_pool MODEL: `done` of a StreamPool throws, closes the pool that calls it, and drops it.
#include <ATen/ATen.h>
#include <ipex/load.h>
#include <ipex/stream_pool.h>

#include <chrono>
#include <future>
#include <iostream>
#include <memory>
#include <stdexcept>

namespace {

const at::Tensor& input() {
  static const at::Tensor x = at::randn({2, 4, 5, 5});
  return x;
}

bool comes(std::future<void> future) { return future.wait_for(std::chrono::seconds(60)) == std::future_status::ready; }

using Pool = std::unique_ptr<ipex::StreamPool>;

// Whether the pool, which has more requests waiting, calls `act` and goes on.
template <typename Act>
bool survives(const torch::jit::Module& model, const Act& act) {
  auto pool = std::make_shared<Pool>(std::make_unique<ipex::StreamPool>(model, ipex::StreamPoolOptions{.streams = 2}));
  std::promise<void> is_done, is_next;
  (*pool)->submit({input()}, [&, pool](c10::IValue, const std::exception_ptr&) {
    is_done.set_value();
    is_next.get_future().wait();
    act(*pool);
  });
  const bool is_called = comes(is_done.get_future());
  std::future<c10::IValue> other = (*pool)->submit({input()});
  is_next.set_value();
  return is_called && other.get().isTensor();
}

}  // namespace

int main(int, char** argv) {
  const torch::jit::Module model = ipex::load(argv[1]);
  const bool throws = survives(model, [](Pool&) { throw std::runtime_error("done"); });
  const bool closes = survives(model, [](Pool& pool) { pool->close(); });
  const bool drops = survives(model, [](Pool& pool) { pool.reset(); });
  std::cout << "throws " << throws << ", closes " << closes << ", drops " << drops << '\n';
  return throws && closes && drops ? 0 : 1;
}
