// How many threads the work of a call is cut for.
#pragma once

namespace ipex::runtime {

// Torch's setting; one inside a parallel region, whoever opened it: its threads are taken already. Asking also makes a
// new thread take over torch's setting, which oneDNN does not know of.
int thread_count();

// oneDNN asks OpenMP for a number of threads and freezes it into what it makes. Inside a parallel region OpenMP answers
// with the number outside of it, and what is made then would write the share of its first thread only. While this lives,
// the answer is thread_count().
class FrozenThreadCount {
 public:
  FrozenThreadCount();
  ~FrozenThreadCount();
  FrozenThreadCount(const FrozenThreadCount&) = delete;
  FrozenThreadCount& operator=(const FrozenThreadCount&) = delete;

 private:
  int before_ = 0;  // 0: it needed no change
};

}  // namespace ipex::runtime
