// How many pieces of a call's work parallel_for gives a thread at least.
//
// A parallel region wakes the whole team and waits for all of it, however few have something to do. A smaller team is no way
// out: OpenMP ends the threads that are left over, and makes them anew for the next region. So either the caller does it
// all, where that is less than waking the others, or everybody gets an equal share.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ipex::runtime {

// `work` is that of all pieces, in the unit of `worth_waking`.
constexpr int64_t grain_of(int64_t pieces, int64_t work, int64_t worth_waking) {
  return work > worth_waking ? 1 : std::max<int64_t>(1, pieces);
}

}  // namespace ipex::runtime
