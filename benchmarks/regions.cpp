// What one parallel region costs, by the way in which its threads share the work: the same arithmetic in registers, region after
// region, one way after the other.
//
//     g++ -std=c++20 -O3 -fopenmp benchmarks/regions.cpp -o /tmp/regions && /tmp/regions
//
// Prints the speed-up over one thread: the median of 300 regions, and their mean, which regions that wait for a core make small. Run
// it again with as many busy processes beside it as there are cores. docs/decisions/0108-a-pool-for-parallel-regions.md
#include <linux/futex.h>
#include <omp.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

void rest() { __builtin_ia32_pause(); }

// Threads that take blocks of whatever region there is. Who opens a region takes blocks as well, and waits only for those that
// others have begun: a thread that has no core holds nobody up.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { serve(); });
  }

  ~Pool() {
    is_over_ = true;
    announce(INT_MAX);
    for (std::thread& thread : threads_) thread.join();
  }

  template <typename Run>
  void run(int blocks, Run& run_block) {
    Region* region = blocks > 1 ? free_region() : nullptr;
    if (!region) {  // more callers than regions
      for (int block = 0; block < blocks; ++block) run_block(block);
      return;
    }
    region->run = [](void* context, int block) { (*static_cast<Run*>(context))(block); };
    region->context = &run_block;
    region->done.store(0, std::memory_order_relaxed);
    const uint64_t generation = (region->ticket.load(std::memory_order_relaxed) >> 40) + 1;
    region->ticket.store(generation << 40 | static_cast<uint64_t>(blocks) << 20, std::memory_order_release);
    announce(blocks - 1);
    region->take_blocks();
    for (int turn = 0; region->done.load(std::memory_order_acquire) < blocks; ++turn) {
      turn < turns_before_yielding ? rest() : static_cast<void>(sched_yield());
    }
    region->is_taken.store(false, std::memory_order_release);
  }

 private:
  static constexpr int turns_before_yielding = 2000;
  static constexpr std::chrono::microseconds idle_before_sleep{50};

  struct alignas(128) Region {
    // Generation, number of blocks, next block: to see that there is a block of this region, and to take it, is one step. Who comes
    // late finds none, and touches nothing of a caller who has gone on.
    std::atomic<uint64_t> ticket{0};
    void (*run)(void*, int) = nullptr;
    void* context = nullptr;
    alignas(64) std::atomic<int> done{0};
    std::atomic<bool> is_taken{false};

    bool take_blocks() {
      bool took_any = false;
      for (uint64_t now = ticket.load(std::memory_order_acquire);;) {
        const auto next = static_cast<int>(now & 0xfffff), blocks = static_cast<int>(now >> 20 & 0xfffff);
        if (next >= blocks) return took_any;
        if (!ticket.compare_exchange_weak(now, now + 1, std::memory_order_acquire)) continue;
        run(context, next);
        took_any = true;
        done.fetch_add(1, std::memory_order_release);
        now = ticket.load(std::memory_order_acquire);
      }
    }
  };

  Region* free_region() {
    for (Region& region : regions_) {
      const bool may_be_free = !region.is_taken.load(std::memory_order_relaxed);
      if (may_be_free && !region.is_taken.exchange(true, std::memory_order_acquire)) return &region;
    }
    return nullptr;
  }

  void announce(int wanted) {
    announced_.fetch_add(1);
    if (const int sleeping = sleeping_.load(); sleeping > 0) {
      syscall(SYS_futex, &announced_, FUTEX_WAKE_PRIVATE, std::min(sleeping, wanted));
    }
  }

  void serve() {
    while (true) {
      const uint32_t seen = announced_.load(std::memory_order_acquire);
      if (is_over_) return;
      bool took_any = false;
      for (Region& region : regions_) took_any |= region.take_blocks();
      if (took_any || hears_of_more(seen)) continue;
      sleeping_.fetch_add(1);
      if (announced_.load() == seen) syscall(SYS_futex, &announced_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
      sleeping_.fetch_sub(1);
    }
  }

  bool hears_of_more(uint32_t seen) const {
    const auto end = std::chrono::steady_clock::now() + idle_before_sleep;
    do {
      for (int i = 0; i < 32; ++i) {
        if (announced_.load(std::memory_order_acquire) != seen) return true;
        rest();
      }
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  alignas(64) std::atomic<uint32_t> announced_{0};
  alignas(64) std::atomic<int> sleeping_{0};
  std::atomic<bool> is_over_{false};
  Region regions_[8];
  std::vector<std::thread> threads_;
};

// About `amount` multiplications that nothing waits for.
__attribute__((noinline)) void compute(int amount) {
  float sums[64];
  for (int i = 0; i < 64; ++i) sums[i] = static_cast<float>(i);
  for (int turn = 0; turn < amount; ++turn) {
    for (float& sum : sums) sum = sum * .999999f + 1e-7f;
    asm volatile("" ::: "memory");
  }
}

template <typename Run>
double seconds(Run&& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Work {
  int units, amount, threads;

  int blocks() const { return std::min(units, 8 * threads); }
  void run_block(int block) const {
    for (int i = units * block / blocks(); i < units * (block + 1) / blocks(); ++i) compute(amount);
  }
};

void in_equal_shares(const Work& work) {
#pragma omp parallel
  {
    const int thread = omp_get_thread_num();
    for (int i = work.units * thread / work.threads; i < work.units * (thread + 1) / work.threads; ++i) {
      compute(work.amount);
    }
  }
}

void as_threads_come(const Work& work) {
  std::atomic<int> next{0};
#pragma omp parallel
  for (int block; (block = next.fetch_add(1)) < work.blocks();) work.run_block(block);
}

template <typename Run>
void print(const char* way, double of_one_thread, Run&& run) {
  constexpr int regions = 300;
  std::vector<double> times;
  for (int i = 0; i < regions; ++i) times.push_back(seconds(run));
  double sum = 0;
  for (const double time : times) sum += time;
  std::sort(times.begin(), times.end());
  std::printf("  %s %.2f (%.2f)", way, of_one_thread / times[regions / 2], of_one_thread * regions / sum);
}

}  // namespace

int main() {
  constexpr double seconds_of_unit = 5e-6;
  constexpr int probe = 20000;
  double of_probe = 1;
  for (int i = 0; i < 20; ++i) of_probe = std::min(of_probe, seconds([] { compute(probe); }));
  const auto amount = static_cast<int>(probe * seconds_of_unit / of_probe);
  for (const int threads : {2, 4, 8, 16, 32, 64}) {
    if (threads > omp_get_num_procs()) break;
    omp_set_num_threads(threads);
    Pool pool(threads);
    for (const int microseconds : {20, 100, 400, 1600}) {
      const Work work{microseconds / 5 * threads, amount, threads};
      double of_one = 1;  // the fastest, as neighbours may be busy
      for (int i = 0; i < 20; ++i) {
        of_one = std::min(of_one, seconds([&] {
                            for (int unit = 0; unit < work.units; ++unit) compute(amount);
                          }));
      }
      std::printf("%2d threads, regions of %4d us:", threads, microseconds);
      print("equal shares", of_one, [&] { in_equal_shares(work); });
      print("as threads come", of_one, [&] { as_threads_come(work); });
      print("pool", of_one, [&] {
        auto run_block = [&](int block) { work.run_block(block); };
        pool.run(work.blocks(), run_block);
      });
      std::puts("");
    }
  }
}
