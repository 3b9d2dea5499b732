// A thread that works for a region, and may lose its core to another process meanwhile. Others can see that, and give it theirs.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <ctime>

namespace ipex::runtime {

// A turn of a loop that waits.
inline void rest() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class alignas(64) Worker {
 public:
  // By the thread itself, once.
  void introduce();
  bool is(pid_t id) const { return id_ == id; }

  // By the thread itself, around its work for a region. `end` says whether it was moved meanwhile: it is back where it may be.
  void begin(const void* region);
  bool end();

  // By others. Whether it works for this region; whether it makes headway, by a glance of so long.
  bool works_for(const void* region) const;
  bool has_core(std::chrono::microseconds glance) const;
  // To the CPU of the calling thread until its work ends, if it may be there and still works.
  bool move_here();

 private:
  enum State : int { idle, works, is_moving, has_moved };

  std::atomic<int> state_{idle};
  std::atomic<const void*> region_{nullptr};
  std::atomic<pid_t> id_{0};
  std::atomic<clockid_t> clock_{};  // the time for which it had a core
  cpu_set_t allowed_{};
};

// The calling thread goes on on a CPU that is none of these, if there is one. Where it may be stays as it was.
void move_to_unused(const cpu_set_t& used);

}  // namespace ipex::runtime
