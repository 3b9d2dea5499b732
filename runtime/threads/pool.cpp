#include "threads/pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace ipex::runtime {
namespace {

void rest() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  return syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

// To the CPU that is `distance` after this one, of those where the thread may be.
void move_away(int cpu, int distance) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;  // more CPUs than fit
  std::vector<int> cpus;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) cpus.push_back(i);
  }
  const auto at = std::find(cpus.begin(), cpus.end(), cpu);
  if (at == cpus.end() || cpus.size() == 1) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpus[(at - cpus.begin() + distance) % cpus.size()], &one);
  sched_setaffinity(0, sizeof one, &one);
  sched_setaffinity(0, sizeof allowed, &allowed);
}

constexpr uint64_t word_of(int64_t next, int64_t end) {
  return static_cast<uint64_t>(end) << 32 | static_cast<uint64_t>(next);
}
constexpr int64_t next_of(uint64_t word) { return static_cast<uint32_t>(word); }
constexpr int64_t end_of(uint64_t word) { return static_cast<int64_t>(word >> 32); }

}  // namespace

Pool::Pool(int most_threads, Start start)
    : most_threads_(most_threads), start_(std::move(start)), beds_(std::make_unique<Bed[]>(most_threads)) {
  for (Region& region : regions_) region.shares = std::make_unique<Share[]>(most_threads);
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  const std::lock_guard lock(starting_);
  is_over_ = true;
  announce(most_threads_);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Pool::Region::open(const Work& new_work, int64_t blocks, int new_threads) {
  work = new_work;
  done.store(0, std::memory_order_relaxed);
  has_failed.store(false, std::memory_order_relaxed);
  threads.store(new_threads, std::memory_order_relaxed);
  cpu.store(sched_getcpu(), std::memory_order_relaxed);
  for (int i = new_threads - 1; i >= 0; --i) {
    shares[i].blocks.store(word_of(blocks * i / new_threads, blocks * (i + 1) / new_threads),
                           std::memory_order_release);
  }
}

// How many blocks of a share were taken. Until they are counted as done, the region stays open, and so does what it points to.
uint32_t Pool::Region::take_share(Share& share) {
  uint32_t taken = 0;
  for (uint64_t word = share.blocks.load(std::memory_order_relaxed); next_of(word) < end_of(word); ++taken) {
    word = share.blocks.fetch_add(1, std::memory_order_acquire);
    if (next_of(word) >= end_of(word)) break;
    if (!has_failed.load(std::memory_order_relaxed)) {
      try {
        work.run(work.context, next_of(word));
      } catch (...) {
        if (!has_failed.exchange(true)) error = std::current_exception();
      }
    }
    word = share.blocks.load(std::memory_order_relaxed);
  }
  return taken;
}

bool Pool::Region::take_blocks(int thread) {
  const int count = threads.load(std::memory_order_relaxed);
  bool took_any = false;
  for (int turn = 0; thread < count && turn < count; ++turn) {
    const uint32_t taken = take_share(shares[(thread + turn) % count]);
    if (taken == 0) continue;
    took_any = true;
    done.fetch_add(taken);
    if (caller_sleeps) futex(done, FUTEX_WAKE_PRIVATE, 1);
  }
  return took_any;
}

// A thread that has begun a block and lost its core gets that of a caller who sleeps.
void Pool::Region::wait_for(uint32_t blocks) {
  constexpr int turns_before_sleep = 1000;
  for (int turn = 0; turn < turns_before_sleep; ++turn) {
    if (done.load(std::memory_order_acquire) == blocks) return;
    rest();
  }
  caller_sleeps = true;
  for (uint32_t seen = done; seen < blocks; seen = done) futex(done, FUTEX_WAIT_PRIVATE, seen);
  caller_sleeps = false;
}

void Pool::share(const Work& work, int64_t blocks, int threads) {
  threads = static_cast<int>(std::min<int64_t>({threads, most_threads_, blocks}));
  Region* const region = threads > 1 ? free_region() : nullptr;
  if (!region) {
    for (int64_t block = 0; block < blocks; ++block) work.run(work.context, block);
    return;
  }
  start_threads(threads);
  region->open(work, blocks, threads);
  announce(threads);
  region->take_blocks(0);
  region->wait_for(static_cast<uint32_t>(blocks));
  const std::exception_ptr error = std::move(region->error);
  region->error = nullptr;
  region->is_taken.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

Pool::Region* Pool::free_region() {
  for (Region& region : regions_) {
    const bool may_be_free = !region.is_taken.load(std::memory_order_relaxed);
    if (may_be_free && !region.is_taken.exchange(true, std::memory_order_acquire)) return &region;
  }
  return nullptr;
}

void Pool::start_threads(int threads) {
  if (started_.load(std::memory_order_acquire) >= threads) return;
  const std::lock_guard lock(starting_);
  try {
    for (int i = started_; i < threads && !is_over_; ++i) {
      threads_.emplace_back([this, i] { serve(i); });
      started_.store(i + 1, std::memory_order_release);
    }
  } catch (const std::system_error&) {  // the system has no more: those that there are will do
  }
}

void Pool::announce(int threads) {
  announced_.fetch_add(1);
  for (int i = 1; i < threads; ++i) {
    std::atomic<uint32_t>& bed = beds_[i].is_used;
    if (bed.load() && bed.exchange(0)) futex(bed, FUTEX_WAKE_PRIVATE, 1);
  }
}

void Pool::serve(int thread) {
  constexpr std::chrono::microseconds awake_for{50};
  if (start_) start_(thread);
  leave_cpu_of_callers(thread);
  auto until = std::chrono::steady_clock::time_point::min();
  while (true) {
    const uint32_t seen = announced_.load(std::memory_order_acquire);
    if (is_over_) return;
    bool took_any = false;
    for (Region& region : regions_) took_any |= region.take_blocks(thread);
    if (took_any) until = std::chrono::steady_clock::now() + awake_for;
    if (took_any || hears_of_more(seen, until)) continue;
    sleep(thread, seen);
  }
}

bool Pool::hears_of_more(uint32_t seen, std::chrono::steady_clock::time_point until) const {
  do {
    for (int i = 0; i < 32; ++i) {
      if (announced_.load(std::memory_order_acquire) != seen) return true;
      rest();
    }
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

void Pool::sleep(int thread, uint32_t seen) {
  std::atomic<uint32_t>& bed = beds_[thread].is_used;
  bed.store(1);
  if (announced_.load() == seen) futex(bed, FUTEX_WAIT_PRIVATE, 1);
  bed.store(0);
  leave_cpu_of_callers(thread);
}

// The kernel may wake a thread on its caller's CPU although others are idle: a virtual machine's look taken while they rest.
void Pool::leave_cpu_of_callers(int thread) const {
  const int here = sched_getcpu();
  const auto is_of_caller = [&](const Region& region) {
    return region.is_taken.load(std::memory_order_relaxed) && region.cpu.load(std::memory_order_relaxed) == here;
  };
  if (std::any_of(std::begin(regions_), std::end(regions_), is_of_caller)) move_away(here, thread);
}

}  // namespace ipex::runtime
