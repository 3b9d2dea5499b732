// What parallel regions take: for benchmarks.
#pragma once

#include <ipex/export.h>

#include <chrono>
#include <cstdint>
#include <functional>

namespace ipex {

struct RegionTimes {
  int64_t regions = 0;
  std::chrono::nanoseconds within{};   // from their begin to their end
  std::chrono::nanoseconds waiting{};  // of that, for blocks that other threads have begun
};

// Calls it, and counts the regions that this thread opens meanwhile.
IPEX_API RegionTimes time_regions(const std::function<void()>& call);

}  // namespace ipex
