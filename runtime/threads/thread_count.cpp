#include "threads/thread_count.h"

#include <ATen/Parallel.h>
#include <omp.h>

// MKL's, which torch has in it or not. Its number of threads is a setting of its own.
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);

namespace ipex::runtime {
namespace {

thread_local bool in_region = false;

}  // namespace

int thread_count() {
  if (in_region) return 1;
  const int outside = at::get_num_threads();
  return at::in_parallel_region() ? 1 : outside;
}

int part_count() {
  constexpr int parts_of_a_thread = 4;
  const int threads = thread_count();
  return threads <= 2 ? threads : threads * parts_of_a_thread;
}

bool is_in_region() { return in_region || omp_in_parallel(); }

InRegion::InRegion() : threads_before_(omp_get_max_threads()) {
  in_region = true;
  omp_set_num_threads(1);
}

InRegion::~InRegion() {
  omp_set_num_threads(threads_before_);
  in_region = false;
}

void use_threads(int threads) {
  at::get_num_threads();  // takes over torch's setting now: later, that would undo what follows
  omp_set_num_threads(threads);
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(threads);
}

void start_worker() {
  use_threads(1);
  in_region = true;
}

}  // namespace ipex::runtime
