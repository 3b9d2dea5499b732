// The one place that runs parallel work of ours.
#pragma once

#include <ATen/Parallel.h>

#include <cstdint>
#include <utility>

namespace ipex::runtime {

// Calls `run(begin, end)` for ranges that together are 0 to `count`, each of at least `grain` but for the last, in as many threads
// as torch allows; in the caller's alone inside a parallel region. An exception of one comes to the caller.
template <typename Run>
void parallel_for(int64_t count, int64_t grain, Run&& run) {
  at::parallel_for(0, count, grain, std::forward<Run>(run));
}

// The same for ranges that each give a value: `join` makes one of two, from `identity` on.
template <typename Value, typename Run, typename Join>
Value parallel_reduce(int64_t count, int64_t grain, Value identity, const Run& run, const Join& join) {
  return at::parallel_reduce(0, count, grain, identity, run, join);
}

}  // namespace ipex::runtime
