// Threads that share the blocks of a parallel region.
//
// Each thread begins with its own share of the blocks, the same from region to region, so that it finds in its cache what it
// wrote there; then it takes what others have left. Who opens a region takes part, and waits only for blocks that somebody has
// begun: a thread that is slow, has no core or has not woken up holds nobody up. Idle threads look out for a while, then
// sleep. docs/decisions/threads.md
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "threads/worker.h"

namespace ipex::runtime {

class Pool {
 public:
  using Start = std::function<void(int thread)>;

  // At most so many threads, callers included: they start when a region asks for them. Each calls `start` first.
  explicit Pool(int most_threads, Start start = {});
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Calls run(block) for each of 0 to `blocks`, in at most `threads` threads. The first exception of one comes to the caller;
  // blocks that nobody has begun by then are left out.
  template <typename Run>
  void run(int64_t blocks, int threads, const Run& run) {
    share({[](const void* context, int64_t block) { (*static_cast<const Run*>(context))(block); }, &run}, blocks,
          threads);
  }

  // Ends the threads. Regions go on in the threads of their callers.
  void stop();

 private:
  struct Work {
    void (*run)(const void* context, int64_t block) = nullptr;
    const void* context = nullptr;
  };

  // Blocks [next, end) that one thread begins with: `end` in the upper half of the word, so that to take one and to see whether
  // there is one is a single step. Who comes late finds none, or one of the region that is open by then. The caller looks at
  // `done`, in a line of its own: a counter for all would go from core to core, and hold each of them up.
  struct Share {
    alignas(64) std::atomic<uint64_t> blocks{0};
    alignas(64) std::atomic<uint32_t> done{0};
  };

  struct alignas(128) Region {
    std::atomic<bool> is_taken{false};
    std::atomic<int> threads{0};
    std::atomic<int> cpu{-1};  // of the caller
    Work work;
    std::exception_ptr error;
    std::unique_ptr<Share[]> shares;
    Worker caller;
    alignas(64) std::atomic<uint32_t> wakes{0};  // the caller, each time that it changes
    std::atomic<bool> caller_sleeps{false};
    std::atomic<bool> has_failed{false};

    void open(const Work& new_work, int64_t blocks, int new_threads);
    bool take_blocks(int thread);
    uint32_t take_share(Share& share);
    int first_unfinished(int64_t blocks, int share) const;
    bool ends_within(std::chrono::microseconds time, int64_t blocks) const;
  };

  struct alignas(64) Place {
    std::atomic<uint32_t> sleeps{0};
    std::atomic<int> cpu{-1};  // while it looks out or computes
    Worker worker;
  };

  static constexpr int most_regions = 8;  // callers at a time; others do without help

  void share(const Work& work, int64_t blocks, int threads);
  Region* free_region();
  void wait_for(Region& region, int64_t blocks);
  bool give_core(Region& region, const Worker* giver);
  void start_threads(int threads);
  void announce(int threads);
  void serve(int thread);
  bool hears_of_more(int thread, uint32_t seen, std::chrono::steady_clock::time_point until);
  Region* open_region(int thread);
  void sleep(int thread, uint32_t seen);
  void find_own_cpu(int thread);

  const int most_threads_;
  const Start start_;
  Region regions_[most_regions];
  std::unique_ptr<Place[]> places_;
  alignas(64) std::atomic<uint32_t> announced_{0};
  std::atomic<bool> is_over_{false};
  alignas(64) std::atomic<int> started_{1};
  std::mutex starting_;
  std::vector<std::thread> threads_;
};

}  // namespace ipex::runtime
