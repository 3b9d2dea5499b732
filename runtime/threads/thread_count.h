// How many threads the work of a call is cut for.
#pragma once

namespace ipex::runtime {

// Torch's setting; one inside a parallel region, whoever opened it: its threads are taken already. Asking also makes a
// new thread take over torch's setting.
int thread_count();

// How many parts to cut work into that can be cut in few ways only. Two cores are mostly alike, of more some are slow: those leave
// parts to others.
int part_count();

// Whether this thread runs blocks of a region.
bool is_in_region();

// While it lives, this thread is in a region: what aten does in a block takes one thread as well.
class InRegion {
 public:
  InRegion();
  ~InRegion();
  InRegion(const InRegion&) = delete;
  InRegion& operator=(const InRegion&) = delete;

 private:
  const int threads_before_;
};

// Of this thread alone, and for aten too. at::set_num_threads would also be for threads that start later.
void use_threads(int threads);

// A thread of a pool is in a region always.
void start_worker();

}  // namespace ipex::runtime
