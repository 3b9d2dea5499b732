// The one allocator of the memory that our ops keep and hand out: results, scratch, packed weights.
//
// malloc takes large blocks from the system one by one and gives them back when they are freed: so calls bring thousands
// of page faults. And where it puts the next result is by chance, so that a call touches twice the memory it needs, which
// caches then don't hold. Here
//   - results of 64 KiB and more lie in regions, each in the first gap that it fits into: what one is done with the next
//     ones overwrite. There is one pool of regions for results below 1 MiB, and one for larger ones;
//   - smaller results are segments of their own, which the thread that frees one keeps for its next;
//   - weights, and the scratch memory that a thread keeps, are segments of their own and go back to the system when freed.
//     Weights that are not small lie side by side, so that they can have huge pages.
// docs/decisions/memory.md
#pragma once

#include <ipex/memory.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "memory/block.h"
#include "memory/kept_by_thread.h"
#include "memory/region.h"
#include "memory/statistics.h"
#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {

class CachingAllocator {
 public:
  // Never destroyed: a result may outlive everything else.
  static CachingAllocator& instance();

  // Memory at a multiple of 64. Throws c10::OutOfMemoryError, with who holds what, where there is none within the limit
  // after the cache was emptied.
  void* allocate(size_t bytes, Holder holder);
  // The same in a segment of its own, which goes back to the system when it is freed.
  void* allocate_apart(size_t bytes, Holder holder);
  // Of either. May be called by any thread.
  static void free(void* data);
  // Whether `data` was given out here.
  bool owns(const void* data);

  // While there are users, memory is kept.
  void add_user();
  void remove_user();
  bool has_users() const { return users_.load(std::memory_order_relaxed) > 0; }

  void empty_cache();
  void set_limit(std::optional<size_t> bytes) { limit_ = bytes.value_or(no_limit); }
  std::optional<size_t> limit() const;
  int64_t reserved_bytes();

  MemoryStats stats();
  std::vector<MemorySegment> snapshot();
  void reset_peaks();
  void reset_accumulated();

 private:
  friend void drop_blocks(Block* list);

  static constexpr size_t no_limit = ~size_t{0};

  struct Pool {
    bool is_large = false;
    std::vector<std::unique_ptr<Region>> regions;  // each larger than the one before, but for the limit
    size_t bytes_in_use = 0;
    Tallies segments, splits;
    BlocksInUse blocks;
    KeptByThread::Taken taken;  // by others than threads that keep them

    // The newest region is kept, and all new results lie there. The others live for those that users hold.
    bool keeps(const Region& region) const;
  };
  struct Counted;

  CachingAllocator();
  Pool& pool_of(bool is_large) { return pools_[is_large]; }
  // Each with the lock held, and null where there is no memory for it now.
  Block* take_from_region(Pool& pool, size_t bytes, bool is_last_try);
  Block* take_segment(Pool& pool, size_t bytes);
  Block* take_weight(Pool& pool, size_t bytes);
  Region* add_region(Pool& pool, size_t bytes);
  // Calls `take` with the lock held; once more with an empty cache where that gave null.
  template <typename Take>
  Block* take_or_throw(size_t bytes, Holder holder, Take&& take);
  [[noreturn]] void throw_out_of_memory(size_t bytes, Holder holder);

  void free_in_region(Block* block);
  void drop(Block* list);
  // Of a block that is a segment of its own.
  void give_back(Block* block);
  void drop_unused_regions(Pool& pool, bool keeps_none);
  void drop_region(Pool& pool, size_t index);
  // Calls change() and counts what that does to the gaps of a region.
  template <typename Change>
  auto counting_gaps(Pool& pool, Region& region, Change&& change);
  void count_in(Pool& pool, Block& block, Holder holder);
  void count_out(Pool& pool, Block& block);
  bool fits_limit(size_t bytes) const;

  ForkSafeMutex mutex_;
  std::array<Pool, 2> pools_;
  Tallies segments_, splits_;                            // of both
  BlocksInUse blocks_;                                   // of both
  std::map<const char*, Block*> apart_;                  // blocks that are segments of their own, by address
  std::vector<std::unique_ptr<Region>> weight_regions_;  // in which some of these lie
  std::atomic<int64_t> users_ = 0;
  std::atomic<size_t> limit_ = no_limit;
  std::array<std::atomic<int64_t>, 3> bytes_of_holder_{};  // but for results, which have what others don't
  int64_t retries_ = 0, failures_ = 0;
  // What had come and gone when the figures were reset: of all, the small pool and the large one.
  struct Passed {
    int64_t allocated = 0, allocated_bytes = 0, freed = 0, freed_bytes = 0;
  };
  std::array<Passed, 3> passed_{};
};

}  // namespace ipex::runtime
