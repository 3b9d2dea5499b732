#include "threads/thread_count.h"

#include <ATen/Parallel.h>
#include <omp.h>

namespace ipex::runtime {

int thread_count() {
  const int outside = at::get_num_threads();
  return at::in_parallel_region() ? 1 : outside;
}

FrozenThreadCount::FrozenThreadCount() {
  if (thread_count() == omp_get_max_threads()) return;
  before_ = omp_get_max_threads();
  omp_set_num_threads(thread_count());  // of this thread alone
}

FrozenThreadCount::~FrozenThreadCount() {
  if (before_ > 0) omp_set_num_threads(before_);
}

}  // namespace ipex::runtime
