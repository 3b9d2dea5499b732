// Regions of the pool, without torch. Prints what is wrong.
#include "threads/pool.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

using ipex::runtime::Pool;
using ipex::runtime::Worker;

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::printf("%s\n", what);
  std::exit(1);
}

// How often each block was run.
std::vector<int> counts_of(Pool& pool, int64_t blocks, int threads) {
  std::vector<std::atomic<int>> counts(blocks);
  pool.run(blocks, threads, [&](int64_t block) { ++counts[block]; });
  return {counts.begin(), counts.end()};
}

bool are_ones(const std::vector<int>& counts) {
  for (const int count : counts) {
    if (count != 1) return false;
  }
  return true;
}

void every_block_is_run_once() {
  Pool pool(8);
  for (int turn = 0; turn < 300; ++turn) {
    for (const int64_t blocks : {0, 1, 2, 7, 64, 1000}) {
      for (const int threads : {1, 2, 3, 8, 100}) {
        require(are_ones(counts_of(pool, blocks, threads)), "a block was run twice, or not at all");
      }
    }
  }
}

void callers_do_not_disturb_each_other() {
  Pool pool(4);
  std::atomic<bool> is_right = true;
  std::vector<std::thread> callers;
  for (int i = 0; i < 20; ++i) {  // more than there are regions
    callers.emplace_back([&] {
      for (int turn = 0; turn < 500; ++turn) {
        if (!are_ones(counts_of(pool, 16, 4))) is_right = false;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  require(is_right, "a block of one of several callers was run twice, or not at all");
}

void the_first_error_comes_to_the_caller() {
  Pool pool(4);
  for (int turn = 0; turn < 300; ++turn) {
    std::atomic<int> caught = 0;
    try {
      pool.run(64, 4, [&](int64_t block) {
        if (block % 8 == 3) throw std::runtime_error("block");
      });
    } catch (const std::runtime_error&) {
      ++caught;
    }
    require(caught == 1, "no error came to the caller");
    require(are_ones(counts_of(pool, 64, 4)), "a region after an error was not run");
  }
}

void nobody_waits_for_a_thread_that_has_not_begun() {
  std::latch may_begin(1);
  Pool pool(4, [&](int) { may_begin.wait(); });
  require(are_ones(counts_of(pool, 64, 4)), "a block was left to a thread that does not come");
  may_begin.count_down();
  require(are_ones(counts_of(pool, 64, 4)), "a block was run twice, or not at all, once all threads came");
}

void a_block_may_open_a_region() {
  Pool pool(4);
  std::atomic<int> count = 0;
  pool.run(8, 4, [&](int64_t) { pool.run(8, 4, [&](int64_t) { ++count; }); });
  require(count == 64, "a region within a region lost blocks");
}

void regions_go_on_without_threads() {
  Pool pool(4);
  require(are_ones(counts_of(pool, 64, 4)), "a block was run twice, or not at all");
  pool.stop();
  pool.stop();
  require(are_ones(counts_of(pool, 64, 4)), "a block was not run after the threads had ended");
}

// Waits for others, on a machine that may be busy.
template <typename Holds>
void require_soon(const Holds& holds, const char* what) {
  for (int turn = 0; turn < 2000; ++turn) {
    if (holds()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  require(false, what);
}

void a_thread_without_a_core_gets_another_ones_for_its_block() {
  constexpr std::chrono::milliseconds glance{5};
  Worker worker;
  const int region = 0, other = 0;
  std::latch has_begun(1), may_end(1);
  std::atomic<bool> computes = true;
  bool was_moved = false, is_where_it_was = false;
  std::thread thread([&] {
    cpu_set_t before, after;
    sched_getaffinity(0, sizeof before, &before);
    worker.introduce();
    worker.begin(&region);
    has_begun.count_down();
    while (computes) continue;
    may_end.wait();  // asleep it makes no more headway than without a core
    was_moved = worker.end();
    sched_getaffinity(0, sizeof after, &after);
    is_where_it_was = CPU_EQUAL(&before, &after);
    worker.begin(&region);
    was_moved &= !worker.end();
  });
  has_begun.wait();
  require(worker.works_for(&region) && !worker.works_for(&other), "a thread works for another region");
  require_soon([&] { return worker.has_core(glance); }, "a thread that computes looks as if it had no core");
  computes = false;
  require_soon([&] { return !worker.has_core(glance); }, "a thread that waits looks as if it had a core");
  require(worker.move_here() && !worker.move_here(), "a thread was not moved, or twice");
  may_end.count_down();
  thread.join();
  require(was_moved, "a thread was not told that it was moved, or told once more");
  require(is_where_it_was, "a thread that was moved may not be where it might be before");
  require(!worker.works_for(&region) && !worker.move_here(), "a thread was moved after its work");
}

}  // namespace

int main() {
  every_block_is_run_once();
  callers_do_not_disturb_each_other();
  the_first_error_comes_to_the_caller();
  nobody_waits_for_a_thread_that_has_not_begun();
  a_block_may_open_a_region();
  regions_go_on_without_threads();
  a_thread_without_a_core_gets_another_ones_for_its_block();
}
