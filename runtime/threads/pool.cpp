#include "threads/pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "threads/region_watch.h"

namespace ipex::runtime {
namespace {

using Clock = std::chrono::steady_clock;

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  return syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

// For which an idle thread looks out, once its last region is over.
constexpr std::chrono::microseconds awake_for{50};

// How long a thread waits for others before it looks whether they have cores.
constexpr std::chrono::microseconds before_giving_core{100};

constexpr uint64_t word_of(int64_t next, int64_t end) {
  return static_cast<uint64_t>(end) << 32 | static_cast<uint64_t>(next);
}
constexpr int64_t next_of(uint64_t word) { return static_cast<uint32_t>(word); }
constexpr int64_t end_of(uint64_t word) { return static_cast<int64_t>(word >> 32); }

}  // namespace

Pool::Pool(int most_threads, Start start)
    : most_threads_(most_threads), start_(std::move(start)), places_(std::make_unique<Place[]>(most_threads)) {
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
  has_failed.store(false, std::memory_order_relaxed);
  threads.store(new_threads, std::memory_order_relaxed);
  cpu.store(sched_getcpu(), std::memory_order_relaxed);
  for (int i = new_threads - 1; i >= 0; --i) {
    shares[i].done.store(0, std::memory_order_relaxed);
    shares[i].blocks.store(word_of(blocks * i / new_threads, blocks * (i + 1) / new_threads),
                           std::memory_order_release);
  }
}

// The first share, from this one on, of which blocks are still to be done; `threads` if there is none.
int Pool::Region::first_unfinished(int64_t blocks, int share) const {
  const int count = threads.load(std::memory_order_relaxed);
  while (share < count && shares[share].done == blocks * (share + 1) / count - blocks * share / count) ++share;
  return share;
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
    Share& share = shares[(thread + turn) % count];
    const uint32_t taken = take_share(share);
    if (taken == 0) continue;
    took_any = true;
    share.done.fetch_add(taken);
    if (!caller_sleeps) continue;
    wakes.fetch_add(1);
    futex(wakes, FUTEX_WAKE_PRIVATE, 1);
  }
  return took_any;
}

bool Pool::Region::ends_within(std::chrono::microseconds time, int64_t blocks) const {
  const auto until = Clock::now() + time;
  int share = 0;
  do {
    for (int i = 0; i < 32; ++i) {
      share = first_unfinished(blocks, share);
      if (share == threads.load(std::memory_order_relaxed)) return true;
      rest();
    }
  } while (Clock::now() < until);
  return false;
}

// A thread that has nothing to do any more in a region gives its core to one that has begun blocks and has lost its own to another
// process: else both wait until that has had its turn, for milliseconds. Who gave it sleeps.
bool Pool::give_core(Region& region, const Worker* giver) {
  constexpr std::chrono::microseconds glance{20};
  const auto takes = [&](Worker& worker) {
    return &worker != giver && worker.works_for(&region) && !worker.has_core(glance) && worker.works_for(&region) &&
           worker.move_here();
  };
  if (takes(region.caller)) return true;
  const int started = started_.load(std::memory_order_acquire);
  for (int i = 1; i < started; ++i) {
    if (takes(places_[i].worker)) return true;
  }
  return false;
}

void Pool::wait_for(Region& region, int64_t blocks) {
  const RegionWatch watch(&RegionTimes::waiting);
  if (region.ends_within(before_giving_core, blocks)) return;
  give_core(region, &region.caller);
  region.caller_sleeps = true;
  for (uint32_t seen = region.wakes; region.first_unfinished(blocks, 0) < region.threads; seen = region.wakes) {
    futex(region.wakes, FUTEX_WAIT_PRIVATE, seen);
  }
  region.caller_sleeps = false;
}

void Pool::share(const Work& work, int64_t blocks, int threads) {
  threads = static_cast<int>(std::min<int64_t>({threads, most_threads_, blocks}));
  Region* const region = threads > 1 ? free_region() : nullptr;
  if (!region) {
    for (int64_t block = 0; block < blocks; ++block) work.run(work.context, block);
    return;
  }
  start_threads(threads);
  thread_local const pid_t id = gettid();
  if (!region->caller.is(id)) region->caller.introduce();
  region->open(work, blocks, threads);
  announce(threads);
  region->caller.begin(region);
  region->take_blocks(0);
  region->caller.end();
  wait_for(*region, blocks);
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
  } catch (const std::exception&) {  // the system has no more: those that there are will do
  }
}

void Pool::announce(int threads) {
  announced_.fetch_add(1);
  for (int i = 1; i < threads; ++i) {
    std::atomic<uint32_t>& sleeps = places_[i].sleeps;
    if (sleeps.load() && sleeps.exchange(0)) futex(sleeps, FUTEX_WAKE_PRIVATE, 1);
  }
}

void Pool::serve(int thread) {
  Worker& worker = places_[thread].worker;
  worker.introduce();
  if (start_) start_(thread);
  find_own_cpu(thread);
  auto until = Clock::time_point::min();
  while (true) {
    const uint32_t seen = announced_.load(std::memory_order_acquire);
    if (is_over_) return;
    bool took_any = false, was_moved = false;
    for (Region& region : regions_) {
      if (!region.is_taken.load(std::memory_order_relaxed)) continue;
      worker.begin(&region);
      took_any |= region.take_blocks(thread);
      was_moved |= worker.end();
    }
    if (took_any) until = Clock::now() + awake_for;
    if (!was_moved && (took_any || hears_of_more(thread, seen, until))) continue;
    sleep(thread, seen);
  }
}

// While its region is open another one will come soon.
bool Pool::hears_of_more(int thread, uint32_t seen, Clock::time_point until) {
  auto next_look = Clock::now() + before_giving_core;
  for (auto now = Clock::now();; now = Clock::now()) {
    Region* const region = open_region(thread);
    if (region) until = now + awake_for;
    for (int i = 0; i < 32; ++i) {
      if (announced_.load(std::memory_order_acquire) != seen) return true;
      rest();
    }
    if (now > until) return false;
    if (!region || now < next_look) continue;
    if (give_core(*region, &places_[thread].worker)) return false;
    next_look = now + before_giving_core;
  }
}

Pool::Region* Pool::open_region(int thread) {
  const auto found = std::find_if(std::begin(regions_), std::end(regions_), [&](const Region& region) {
    return region.is_taken.load(std::memory_order_relaxed) && region.threads.load(std::memory_order_relaxed) > thread;
  });
  return found == std::end(regions_) ? nullptr : found;
}

void Pool::sleep(int thread, uint32_t seen) {
  Place& place = places_[thread];
  place.cpu.store(-1, std::memory_order_relaxed);
  place.sleeps.store(1);
  if (announced_.load() == seen) futex(place.sleeps, FUTEX_WAIT_PRIVATE, 1);
  place.sleeps.store(0);
  find_own_cpu(thread);
}

// The kernel may wake threads on the CPU of their caller, or several on one, although others are idle: a virtual machine's look
// taken while they rest.
void Pool::find_own_cpu(int thread) {
  cpu_set_t used;
  CPU_ZERO(&used);
  const auto add = [&](const std::atomic<int>& cpu) {
    const int now = cpu.load(std::memory_order_relaxed);
    if (now >= 0 && now < CPU_SETSIZE) CPU_SET(now, &used);
  };
  for (const Region& region : regions_) {
    if (region.is_taken.load(std::memory_order_relaxed)) add(region.cpu);
  }
  const int started = started_.load(std::memory_order_relaxed);
  for (int i = 1; i < started; ++i) {
    if (i != thread) add(places_[i].cpu);
  }
  if (const int here = sched_getcpu(); here < CPU_SETSIZE && CPU_ISSET(here, &used)) move_to_unused(used);
  places_[thread].cpu.store(sched_getcpu(), std::memory_order_relaxed);
}

}  // namespace ipex::runtime
