// The memory that ipex's ops keep and hand out: results, scratch memory and packed weights. docs/how_to/memory.md
//
// Everything here may be called at any time and from any thread. Without a device, or with that of CPUs, a figure is
// ipex's own. For another device it is what torch's allocator for that device says; c10::Error where torch has none.
#pragma once

#include <c10/core/Device.h>
#include <ipex/export.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ipex {

using MemoryDevice = std::optional<c10::Device>;

// Figures by key ("allocated_bytes"), pool ("all", "large_pool", "small_pool") and moment ("current", "peak",
// "allocated", "freed").
struct MemoryStats {
  std::map<std::string, std::map<std::string, std::map<std::string, int64_t>>> figures;
  // How often an allocation was tried again with an empty cache, and how often that failed too.
  int64_t num_alloc_retries = 0, num_ooms = 0;
  // What is kept for shapes that were seen, and empty_cache takes: primitives, row maps, what hangs on shapes alone; and its
  // memory, without that of primitives, which oneDNN does not tell.
  int64_t num_kept = 0, kept_bytes = 0;
};

struct MemoryBlock {
  uintptr_t address;
  int64_t bytes;
  bool is_allocated;
};

// What was taken from the system at once.
struct MemorySegment {
  uintptr_t address;
  int64_t bytes, allocated_bytes;
  bool is_large;
  std::string holder;  // "results", "scratch", "packed weights"
  std::vector<MemoryBlock> blocks;
};

// "allocated_bytes.all.current" and so on, and the four others.
IPEX_API std::map<std::string, int64_t> memory_stats(MemoryDevice device = {});
IPEX_API MemoryStats memory_stats_as_nested_dict(MemoryDevice device = {});
// A table for people.
IPEX_API std::string memory_summary(MemoryDevice device = {}, bool abbreviated = false);
// Of CPUs alone.
IPEX_API std::vector<MemorySegment> memory_snapshot(MemoryDevice device = {});

// Bytes of files that aot_load has mapped (ipex/aot.h). In no other figure: processes share them, and what nobody uses is not
// in memory.
IPEX_API int64_t mapped_bytes();

// In bytes.
IPEX_API int64_t memory_allocated(MemoryDevice device = {});
IPEX_API int64_t max_memory_allocated(MemoryDevice device = {});
IPEX_API int64_t memory_reserved(MemoryDevice device = {});
IPEX_API int64_t max_memory_reserved(MemoryDevice device = {});

// From now on, peaks are those of what comes.
IPEX_API void reset_peak_memory_stats(MemoryDevice device = {});
// The same for what was allocated and freed, and for num_alloc_retries and num_ooms.
IPEX_API void reset_accumulated_memory_stats(MemoryDevice device = {});

// Gives back to the system what is kept for later calls.
IPEX_API void empty_cache(MemoryDevice device = {});

// Bytes that are free, and bytes there are at all: of the machine, its control group and the limit the least.
IPEX_API std::pair<int64_t, int64_t> mem_get_info(MemoryDevice device = {});

// The most bytes to reserve; none lifts the limit. An allocation beyond it empties the cache and tries once more, and then
// throws an error that says who holds what: c10::OutOfMemoryError, which TorchScript turns into a std::runtime_error. What is
// reserved already stays.
IPEX_API void set_memory_limit(std::optional<int64_t> bytes);
IPEX_API std::optional<int64_t> get_memory_limit();

// While one of these lives, all tensors that its thread allocates on the CPU come from here: those that aten's ops make
// inside of an optimised model, too. They may outlive it. The first one puts an allocator before torch's, which for other
// threads hands on to that. Whichever thread destroys it, it ends for the one that made it.
class IPEX_API UseAllocator {
 public:
  UseAllocator();
  ~UseAllocator();
  UseAllocator(const UseAllocator&) = delete;
  UseAllocator& operator=(const UseAllocator&) = delete;

 private:
  std::shared_ptr<std::atomic<int>> count_;  // of those of its thread
};

}  // namespace ipex
