#include "threads/parallel.h"

#include <c10/util/ScopeExit.h>
#include <ipex/region_times.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "threads/fork_safe_mutex.h"
#include "threads/pool.h"
#include "threads/region_watch.h"
#include "threads/team.h"

namespace ipex::runtime {
namespace {

thread_local Pool* pool_of_thread = nullptr;

// Made by the first region. A forked process has none of its threads and makes its own; what it inherits is left alone.
class PoolOfProcess {
 public:
  Pool& get() {
    if (Pool* const pool = pool_.load(std::memory_order_acquire)) return *pool;
    const std::lock_guard lock(making_);
    if (!pool_) {
      static const int forks_seen = pthread_atfork(nullptr, nullptr, [] { instance().pool_ = nullptr; });
      (void)forks_seen;
      const auto cpus = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
      pool_ = new Pool(cpus, start);  // never freed: a thread may be in a region while the process ends
    }
    return *pool_;
  }

  static void start(int thread) {
    pthread_setname_np(pthread_self(), ("ipex " + std::to_string(thread)).c_str());
    start_worker();
  }

  ~PoolOfProcess() {
    if (Pool* const pool = pool_) pool->stop();
  }

  static PoolOfProcess& instance() {
    static PoolOfProcess pool;
    return pool;
  }

 private:
  std::atomic<Pool*> pool_{nullptr};
  ForkSafeMutex making_;
};

}  // namespace

UsePool::UsePool(Pool& pool) : before_(std::exchange(pool_of_thread, &pool)) {}
UsePool::~UsePool() { pool_of_thread = before_; }

void run_blocks(int64_t blocks, c10::function_ref<void(int64_t block)> run) {
  const int threads = thread_count();
  if (threads == 1 || blocks == 1) {
    for (int64_t block = 0; block < blocks; ++block) run(block);
    return;
  }
  const RegionWatch watch(&RegionTimes::within);
  if (RegionWatch::times) ++RegionWatch::times->regions;
  if (keeps_team()) return run_in_team(blocks, threads, run);
  Pool& pool = pool_of_thread ? *pool_of_thread : PoolOfProcess::instance().get();
  const InRegion in_region;
  pool.run(blocks, threads, run);
}

}  // namespace ipex::runtime

namespace ipex {

RegionTimes time_regions(const std::function<void()>& call) {
  RegionTimes times;
  runtime::RegionWatch::times = &times;
  const auto ends = c10::make_scope_exit([] { runtime::RegionWatch::times = nullptr; });
  call();
  return times;
}

}  // namespace ipex
