// Adds to the times of regions of a thread that counts them.
#pragma once

#include <ipex/region_times.h>

namespace ipex::runtime {

class RegionWatch {
 public:
  using Part = std::chrono::nanoseconds RegionTimes::*;

  // Null while the thread counts none.
  static inline thread_local RegionTimes* times = nullptr;

  // For as long as it lives.
  explicit RegionWatch(Part part) : part_(part) {
    if (times) begin_ = std::chrono::steady_clock::now();
  }
  ~RegionWatch() {
    if (times) times->*part_ += std::chrono::steady_clock::now() - begin_;
  }
  RegionWatch(const RegionWatch&) = delete;
  RegionWatch& operator=(const RegionWatch&) = delete;

 private:
  const Part part_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace ipex::runtime
