// How many pieces of a call's work parallel_for gives a thread at least.
//
// What takes less than to wake others, the caller does alone.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ipex::runtime {

// `work` is that of all pieces, in the unit of `worth_waking`.
constexpr int64_t grain_of(int64_t pieces, int64_t work, int64_t worth_waking) {
  return work > worth_waking ? 1 : std::max<int64_t>(1, pieces);
}

}  // namespace ipex::runtime
