#include "threads/worker.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdint>

namespace ipex::runtime {
namespace {

int64_t time_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{1000000000} * time.tv_sec + time.tv_nsec;
}

}  // namespace

void Worker::introduce() {
  clockid_t own{};
  pthread_getcpuclockid(pthread_self(), &own);
  clock_ = own;
  id_ = gettid();
}

void Worker::begin(const void* region) {
  region_.store(region, std::memory_order_relaxed);
  state_.store(works, std::memory_order_release);
}

bool Worker::end() {
  int now = works;
  while (!state_.compare_exchange_weak(now, idle)) {
    if (now == has_moved) {
      sched_setaffinity(0, sizeof allowed_, &allowed_);
      state_ = idle;
      return true;
    }
    if (now == is_moving) sched_yield();
    now = works;
  }
  return false;
}

bool Worker::works_for(const void* region) const {
  return state_.load(std::memory_order_acquire) == works && region_.load(std::memory_order_relaxed) == region;
}

bool Worker::has_core(std::chrono::microseconds glance) const {
  const int64_t before = time_of(clock_);
  const auto until = std::chrono::steady_clock::now() + glance;
  while (std::chrono::steady_clock::now() < until) rest();
  return time_of(clock_) != before;
}

bool Worker::move_here() {
  int now = works;
  if (!state_.compare_exchange_strong(now, is_moving)) return false;
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(sched_getcpu(), &here);
  const bool may_move = sched_getaffinity(id_, sizeof allowed_, &allowed_) == 0 &&
                        CPU_ISSET(sched_getcpu(), &allowed_) && sched_setaffinity(id_, sizeof here, &here) == 0;
  state_ = may_move ? has_moved : works;
  return may_move;
}

void move_to_unused(const cpu_set_t& used) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;  // more CPUs than fit
  const int here = sched_getcpu();
  for (int i = 1; i < CPU_SETSIZE; ++i) {
    const int cpu = (here + i) % CPU_SETSIZE;
    if (!CPU_ISSET(cpu, &allowed) || CPU_ISSET(cpu, &used)) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setaffinity(0, sizeof allowed, &allowed);
    return;
  }
}

}  // namespace ipex::runtime
