// How much of files with packed weights is mapped. It is not the allocator's memory: processes share it, and pages that nobody
// uses are not there.
#pragma once

#include <atomic>
#include <cstdint>

namespace ipex::runtime {

inline std::atomic<int64_t> mapped_file_bytes = 0;

}  // namespace ipex::runtime
