// What one parallel region costs, by the way in which its threads share the work: the same arithmetic in registers, region after
// region, one way after the other.
//
//     g++ -std=c++20 -O3 -fopenmp -I runtime benchmarks/regions.cpp runtime/threads/{pool,worker}.cpp -o /tmp/regions
//
// With -DWITH_TBB and -ltbb oneTBB is another way. Prints the speed-up over one thread: the median of 300 regions, and their mean, which
// regions that wait for a core make small. Run it again with as many busy processes beside it as there are cores.
// docs/decisions/threads.md
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#ifdef WITH_TBB
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#endif

#include "threads/pool.h"

namespace {

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

// Times run(), after a region of somebody else's where there is one.
template <typename Before, typename Run>
void print(const char* way, double of_one_thread, Before&& before, Run&& run) {
  constexpr int regions = 300;
  usleep(50000);  // threads of the way before this one go to sleep
  run();
  std::vector<double> times;
  for (int i = 0; i < regions; ++i) {
    before();
    times.push_back(seconds(run));
  }
  double sum = 0;
  for (const double time : times) sum += time;
  std::sort(times.begin(), times.end());
  std::printf("  %s %.2f (%.2f)", way, of_one_thread / times[regions / 2], of_one_thread * regions / sum);
}

template <typename Run>
void print(const char* way, double of_one_thread, Run&& run) {
  print(way, of_one_thread, [] {}, run);
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
    ipex::runtime::Pool pool(threads);
#ifdef WITH_TBB
    tbb::task_arena arena(threads);
#endif
    for (const int microseconds : {20, 100, 400, 1600}) {
      const Work work{microseconds / 5 * threads, amount, threads}, tiny{threads, amount, threads};
      const auto in_pool = [&] {
        pool.run(work.blocks(), threads, [&](int64_t block) { work.run_block(static_cast<int>(block)); });
      };
      double of_one = 1;  // the fastest, as neighbours may be busy
      for (int i = 0; i < 20; ++i) {
        of_one = std::min(of_one, seconds([&] {
                            for (int unit = 0; unit < work.units; ++unit) compute(amount);
                          }));
      }
      std::printf("%2d threads, regions of %4d us:", threads, microseconds);
      print("equal shares", of_one, [&] { in_equal_shares(work); });
      print("as threads come", of_one, [&] { as_threads_come(work); });
      print("pool", of_one, in_pool);
      print("pool after OpenMP", of_one, [&] { as_threads_come(tiny); }, in_pool);
      print(
          "the same, its team ended", of_one, [&] { as_threads_come(tiny); },
          [&] {
            omp_pause_resource_all(omp_pause_soft);
            in_pool();
          });
#ifdef WITH_TBB
      print("oneTBB", of_one, [&] {
        arena.execute([&] { tbb::parallel_for(0, work.blocks(), [&](int block) { work.run_block(block); }); });
      });
#endif
      std::puts("");
    }
  }
}
