#include "memory/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <iomanip>
#include <mutex>
#include <new>
#include <sstream>

#include "memory/memory_pages.h"

namespace ipex::runtime {
namespace {

// Smaller results are segments of their own, which threads keep.
constexpr size_t least_bytes_in_a_region = size_t{64} << 10;
static_assert(block_bytes(least_bytes_in_a_region) <= most_bytes_of_a_class);
// Smaller weights fill what plain ones leave of malloc's heap, which the system does not get back.
constexpr size_t least_bytes_of_a_large_weight = size_t{256} << 10;
constexpr size_t most_bytes_kept = size_t{1} << 30;  // by each pool

std::string in_words(int64_t bytes) {
  const bool is_large = bytes >= 1 << 20;
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / (is_large ? 1 << 20 : 1 << 10)
       << (is_large ? " MiB" : " KiB");
  return text.str();
}

const char* name(Holder holder) {
  switch (holder) {
    case Holder::result:
      return "results";
    case Holder::scratch:
      return "scratch";
    case Holder::weight:
      return "packed weights";
  }
  return "";
}

}  // namespace

CachingAllocator::CachingAllocator() { pools_[1].is_large = true; }

CachingAllocator& CachingAllocator::instance() {
  static auto* const allocator = new CachingAllocator;
  return *allocator;
}

// --- giving memory out ---

template <typename Change>
auto CachingAllocator::counting_gaps(Pool& pool, Region& region, Change&& change) {
  const int64_t gaps = region.split_gaps(), bytes = region.split_bytes();
  const auto result = change();
  for (Tallies* splits : {&pool.splits, &splits_}) {
    splits->count.change(gaps, region.split_gaps());
    splits->bytes.change(bytes, region.split_bytes());
  }
  return result;
}

void* CachingAllocator::allocate(size_t bytes, Holder holder) {
  if (bytes >= least_bytes_in_a_region) {
    Pool& pool = pool_of(bytes >= least_large_bytes);
    return take_or_throw(bytes, holder,
                         [&](bool is_last_try) { return take_from_region(pool, block_bytes(bytes), is_last_try); })
        ->data();
  }
  Pool& pool = pool_of(false);
  const SizeClass size = size_class_of(block_bytes(bytes));
  if (KeptByThread* kept = KeptByThread::of_this_thread()) {
    if (Block* block = kept->take(size, [&](Block* taken) { count_in(pool, *taken, holder); })) return block->data();
  }
  return take_or_throw(bytes, holder,
                       [&](bool) {
                         Block* block = take_segment(pool, size.bytes);
                         if (block) block->size_class = size.index;
                         return block;
                       })
      ->data();
}

void* CachingAllocator::allocate_apart(size_t bytes, Holder holder) {
  Pool& pool = pool_of(bytes >= least_large_bytes);
  const bool is_weight = holder == Holder::weight && bytes >= least_bytes_of_a_large_weight;
  const auto take = [&](bool) {
    return is_weight ? take_weight(pool, block_bytes(bytes)) : take_segment(pool, block_bytes(bytes));
  };
  return take_or_throw(bytes, holder, take)->data();
}

template <typename Take>
Block* CachingAllocator::take_or_throw(size_t bytes, Holder holder, Take&& take) {
  const auto take_and_count = [&](bool is_last_try) {
    Block* block = take(is_last_try);
    if (!block) return block;
    block->is_large = bytes >= least_large_bytes;
    Pool& pool = pool_of(block->is_large);
    ++pool.taken.count;
    pool.taken.bytes += static_cast<int64_t>(block->bytes);
    count_in(pool, *block, holder);
    return block;
  };
  {
    const std::lock_guard lock(mutex_);
    if (Block* block = take_and_count(false)) return block;
    ++retries_;
  }
  empty_cache();
  {
    const std::lock_guard lock(mutex_);
    if (Block* block = take_and_count(true)) return block;
    ++failures_;
  }
  throw_out_of_memory(bytes, holder);
}

Block* CachingAllocator::take_from_region(Pool& pool, size_t bytes, bool is_last_try) {
  const auto take = [&](Region& region) { return counting_gaps(pool, region, [&] { return region.take(bytes); }); };
  Block* block = pool.regions.empty() ? nullptr : take(*pool.regions.back());
  if (!block) {
    if (Region* region = add_region(pool, bytes)) {
      block = take(*region);
      drop_unused_regions(pool, /*keeps_none=*/false);
    }
  }
  // With little memory, older regions do too.
  for (size_t i = 0; !block && is_last_try && i < pool.regions.size(); ++i) block = take(*pool.regions[i]);
  if (block) pool.bytes_in_use += bytes;
  return block;
}

Region* CachingAllocator::add_region(Pool& pool, size_t bytes) {
  // So large that in the end one region holds all, gaps included. What of it is never used costs no memory.
  const size_t largest = pool.regions.empty() ? 0 : pool.regions.back()->bytes();
  size_t wanted = std::max(pool.bytes_in_use + bytes, largest + largest / 2);
  if (!fits_limit(wanted)) {
    if (!fits_limit(bytes)) return nullptr;
    wanted = std::max(bytes, (limit_ - static_cast<size_t>(segments_.bytes.current)) / line * line);
  }
  try {
    pool.regions.push_back(std::make_unique<Region>(wanted));
  } catch (const std::exception&) {  // the system has no more
    return nullptr;
  }
  pool.segments.add(wanted);
  segments_.add(wanted);
  return pool.regions.back().get();
}

Block* CachingAllocator::take_segment(Pool& pool, size_t bytes) {
  if (!fits_limit(bytes)) return nullptr;
  void* memory = nullptr;
  Block* block;
  try {
    // Without torch's allocator, which would report to its profiler what tensors then report once more.
    memory = c10::alloc_cpu(bytes);
    block = new (memory) Block{.bytes = bytes};
    apart_.emplace(block->address(), block);
  } catch (const std::exception&) {  // the system has no more
    if (memory) c10::free_cpu(memory);
    return nullptr;
  }
  pool.segments.add(bytes);
  segments_.add(bytes);
  return block;
}

Block* CachingAllocator::take_weight(Pool& pool, size_t bytes) {
  constexpr size_t region_bytes = size_t{64} << 20;  // what of it is never used costs no memory
  if (!fits_limit(bytes)) return nullptr;
  Block* block = nullptr;
  try {
    for (size_t i = 0; !block && i < weight_regions_.size(); ++i) block = weight_regions_[i]->take(bytes);
    if (!block) {
      const size_t wanted = (std::max(bytes, region_bytes) + huge_page - 1) / huge_page * huge_page;
      weight_regions_.push_back(std::make_unique<Region>(wanted, Pages::huge));
      block = weight_regions_.back()->take(bytes);
    }
    apart_.emplace(block->address(), block);
  } catch (const std::exception&) {  // the system has no more
    if (block) give_back(block);
    return nullptr;
  }
  block->region = nullptr;
  pool.segments.add(bytes);
  segments_.add(bytes);
  return block;
}

bool CachingAllocator::fits_limit(size_t bytes) const {
  const size_t limit = limit_, reserved = static_cast<size_t>(segments_.bytes.current);
  return limit == no_limit || (reserved <= limit && bytes <= limit - reserved);
}

void CachingAllocator::throw_out_of_memory(size_t bytes, Holder holder) {
  int64_t reserved;
  {
    const std::lock_guard lock(mutex_);
    reserved = segments_.bytes.current;
  }
  const int64_t weights = bytes_of_holder_[static_cast<int>(Holder::weight)];
  const int64_t scratch = bytes_of_holder_[static_cast<int>(Holder::scratch)];
  const int64_t in_use = blocks_.bytes();
  const size_t limit = limit_;
  TORCH_CHECK_WITH(OutOfMemoryError, false, "ipex: expected ", in_words(static_cast<int64_t>(bytes)), " more for ",
                   name(holder), limit == no_limit ? "" : " within a limit of " + in_words(static_cast<int64_t>(limit)),
                   ", got none with the cache emptied. Packed weights hold ", in_words(weights), ", results ",
                   in_words(in_use - weights - scratch), ", scratch memory ", in_words(scratch), ", gaps between them ",
                   in_words(reserved - in_use), ". Let go of models or results",
                   limit == no_limit ? "." : ", or raise the limit: ipex.set_memory_limit.");
}

// --- taking it back ---

void CachingAllocator::free(void* data) {
  if (c10::memoryProfilingEnabled()) c10::profiledCPUMemoryReporter().Delete(data);
  CachingAllocator& all = instance();
  Block* block = Block::of(data);
  if (block->region) return all.free_in_region(block);
  Pool& pool = all.pool_of(block->is_large);
  if (block->size_class >= 0 && all.users_.load(std::memory_order_relaxed) > 0) {
    KeptByThread* kept = KeptByThread::of_this_thread();
    if (kept && kept->keep(block, [&](Block* free) { all.count_out(pool, *free); })) return;
  }
  block->next = nullptr;
  all.drop(block);
}

void CachingAllocator::free_in_region(Block* block) {
  const std::lock_guard lock(mutex_);
  Pool& pool = pool_of(block->is_large);
  Region& region = *block->region;
  char* const begin = reinterpret_cast<char*>(block);
  const size_t bytes = block->bytes;
  count_out(pool, *block);
  pool.bytes_in_use -= bytes;
  counting_gaps(pool, region, [&] {
    region.give_back(block);
    return 0;
  });
  if (pool.keeps(region) && users_ > 0) return;
  forget(begin, begin + bytes);
  if (!region.is_unused()) return;
  const auto found = std::find_if(pool.regions.begin(), pool.regions.end(),
                                  [&](const auto& candidate) { return candidate.get() == &region; });
  drop_region(pool, found - pool.regions.begin());
}

void CachingAllocator::drop(Block* list) {
  const std::lock_guard lock(mutex_);
  while (list) {
    Block* block = list;
    list = block->next;
    Pool& pool = pool_of(block->is_large);
    if (block->is_in_use) count_out(pool, *block);
    apart_.erase(block->address());
    pool.segments.remove(block->bytes);
    segments_.remove(block->bytes);
    give_back(block);
  }
}

void CachingAllocator::give_back(Block* block) {
  const auto found = std::find_if(weight_regions_.begin(), weight_regions_.end(),
                                  [&](const auto& region) { return region->contains(block); });
  if (found == weight_regions_.end()) return c10::free_cpu(block);
  char* const begin = reinterpret_cast<char*>(block);
  char* const end = begin + block->bytes;
  (*found)->give_back(block);
  (*found)->is_unused() ? static_cast<void>(weight_regions_.erase(found)) : forget(begin, end);
}

void drop_blocks(Block* list) { CachingAllocator::instance().drop(list); }

bool CachingAllocator::Pool::keeps(const Region& region) const {
  return &region == regions.back().get() && region.bytes() <= most_bytes_kept;
}

void CachingAllocator::drop_unused_regions(Pool& pool, bool keeps_none) {
  for (size_t i = pool.regions.size(); i-- > 0;) {
    const Region& region = *pool.regions[i];
    if (!keeps_none && pool.keeps(region)) continue;
    region.is_unused() ? drop_region(pool, i) : region.forget_gaps();
  }
}

void CachingAllocator::drop_region(Pool& pool, size_t index) {
  const size_t bytes = pool.regions[index]->bytes();
  pool.regions.erase(pool.regions.begin() + static_cast<std::ptrdiff_t>(index));
  pool.segments.remove(bytes);
  segments_.remove(bytes);
}

void CachingAllocator::empty_cache() {
  drop(KeptByThread::empty_all());
  const std::lock_guard lock(mutex_);
  for (Pool& pool : pools_) drop_unused_regions(pool, /*keeps_none=*/true);
}

void CachingAllocator::add_user() { ++users_; }

void CachingAllocator::remove_user() {
  if (--users_ == 0) empty_cache();
}

// --- figures ---

void CachingAllocator::count_in(Pool& pool, Block& block, Holder holder) {
  block.holder = holder;
  block.is_in_use = true;
  pool.blocks.add(block.bytes);
  blocks_.add(block.bytes);
  if (holder != Holder::result) bytes_of_holder_[static_cast<int>(holder)] += static_cast<int64_t>(block.bytes);
}

void CachingAllocator::count_out(Pool& pool, Block& block) {
  const Holder holder = block.holder;
  block.is_in_use = false;
  pool.blocks.remove(block.bytes);
  blocks_.remove(block.bytes);
  if (holder != Holder::result) bytes_of_holder_[static_cast<int>(holder)] -= static_cast<int64_t>(block.bytes);
}

bool CachingAllocator::owns(const void* data) {
  const std::lock_guard lock(mutex_);
  if (apart_.count(static_cast<const char*>(data) - sizeof(Block))) return true;
  for (const Pool& pool : pools_) {
    for (const auto& region : pool.regions) {
      if (region->contains(data)) return true;
    }
  }
  return false;
}

std::optional<size_t> CachingAllocator::limit() const {
  const size_t limit = limit_;
  return limit == no_limit ? std::nullopt : std::optional(limit);
}

int64_t CachingAllocator::reserved_bytes() {
  const std::lock_guard lock(mutex_);
  return segments_.bytes.current;
}

// All threads wait meanwhile, so that the figures are those of one moment.
struct CachingAllocator::Counted {
  explicit Counted(CachingAllocator& of) : all(of), lock(of.mutex_) {
    const Pool &small = all.pools_[0], &large = all.pools_[1];
    const KeptByThread::Taken by_threads = threads.taken();
    const int64_t count = by_threads.count + small.taken.count, bytes = by_threads.bytes + small.taken.bytes;
    fill(0, all.blocks_, count + large.taken.count, bytes + large.taken.bytes);
    fill(1, large.blocks, large.taken.count, large.taken.bytes);
    fill(2, small.blocks, count, bytes);
  }

  void fill(int pool, const BlocksInUse& blocks, int64_t allocated, int64_t allocated_bytes) {
    passed[pool] = {allocated, allocated_bytes, allocated - blocks.count(), allocated_bytes - blocks.bytes()};
  }

  CachingAllocator& all;
  const KeptByThread::AllLocked threads;
  const std::lock_guard<ForkSafeMutex> lock;
  std::array<Passed, 3> passed;  // of all, the large pool, the small one
};

MemoryStats CachingAllocator::stats() {
  MemoryStats stats;
  const Counted now(*this);
  const std::array<const char*, 3> names{"all", "large_pool", "small_pool"};
  const std::array<const BlocksInUse*, 3> blocks{&blocks_, &pools_[1].blocks, &pools_[0].blocks};
  const std::array<const Tallies*, 3> segments{&segments_, &pools_[1].segments, &pools_[0].segments};
  const std::array<const Tallies*, 3> splits{&splits_, &pools_[1].splits, &pools_[0].splits};
  for (int i = 0; i < 3; ++i) {
    const auto set = [&](const char* key, int64_t current, int64_t peak, int64_t allocated, int64_t freed) {
      stats.figures[key][names[i]] = {{"current", current}, {"peak", peak}, {"allocated", allocated}, {"freed", freed}};
    };
    const auto set_tally = [&](const char* key, const Tally& t) { set(key, t.current, t.peak, t.allocated, t.freed); };
    const Passed &ever = now.passed[i], &before = passed_[i];
    // Nothing waits for a stream on a CPU: what is active is allocated.
    for (const auto& [key, key_of_bytes] : {std::pair{"allocated", "allocated_bytes"}, {"active", "active_bytes"}}) {
      set(key, blocks[i]->count(), blocks[i]->peak_count(), ever.allocated - before.allocated,
          ever.freed - before.freed);
      set(key_of_bytes, blocks[i]->bytes(), blocks[i]->peak_bytes(), ever.allocated_bytes - before.allocated_bytes,
          ever.freed_bytes - before.freed_bytes);
    }
    set_tally("segment", segments[i]->count);
    set_tally("reserved_bytes", segments[i]->bytes);
    set_tally("inactive_split", splits[i]->count);
    set_tally("inactive_split_bytes", splits[i]->bytes);
  }
  stats.num_alloc_retries = retries_;
  stats.num_ooms = failures_;
  return stats;
}

void CachingAllocator::reset_peaks() {
  const Counted now(*this);
  blocks_.reset_peak();
  segments_.reset_peak();
  splits_.reset_peak();
  for (Pool& pool : pools_) {
    pool.blocks.reset_peak();
    pool.segments.reset_peak();
    pool.splits.reset_peak();
  }
}

void CachingAllocator::reset_accumulated() {
  const Counted now(*this);
  passed_ = now.passed;
  segments_.reset_accumulated();
  splits_.reset_accumulated();
  for (Pool& pool : pools_) {
    pool.segments.reset_accumulated();
    pool.splits.reset_accumulated();
  }
  retries_ = failures_ = 0;
}

std::vector<MemorySegment> CachingAllocator::snapshot() {
  std::vector<MemorySegment> segments;
  const Counted now(*this);
  const auto add = [&](const void* address, size_t bytes, bool is_large, Holder holder) -> MemorySegment& {
    return segments.emplace_back(MemorySegment{
        reinterpret_cast<uintptr_t>(address), static_cast<int64_t>(bytes), 0, is_large, name(holder), {}});
  };
  const auto add_block = [](MemorySegment& segment, const void* address, size_t bytes, bool is_in_use) {
    segment.blocks.push_back({reinterpret_cast<uintptr_t>(address), static_cast<int64_t>(bytes), is_in_use});
    if (is_in_use) segment.allocated_bytes += static_cast<int64_t>(bytes);
  };
  for (const Pool& pool : pools_) {
    for (const auto& region : pool.regions) {
      MemorySegment& segment = add(region->data(), region->bytes(), pool.is_large, Holder::result);
      region->for_each_piece([&](const char* address, size_t bytes, const Block* block) {
        add_block(segment, address, bytes, block != nullptr);
      });
    }
  }
  for (const auto& [address, block] : apart_) {
    add_block(add(address, block->bytes, block->is_large, block->holder), address, block->bytes, block->is_in_use);
  }
  return segments;
}

}  // namespace ipex::runtime
