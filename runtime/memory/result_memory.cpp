#include "memory/result_memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "memory/memory_pages.h"
#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {
namespace {

// Smaller results stay in malloc's hands, which is quicker and keeps them.
constexpr size_t least_bytes = size_t{64} << 10;
constexpr size_t most_bytes_kept = size_t{1} << 30;

// Memory in which results lie, and the gaps between them.
class Region {
 public:
  explicit Region(size_t bytes) : memory_(c10::GetDefaultCPUAllocator()->allocate(bytes)), bytes_(bytes) {
    gaps_.emplace(0, bytes);
  }

  // Where the first gap of so many bytes is. From now on these are in use.
  std::optional<size_t> take(size_t bytes) {
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      const auto [begin, length] = *gap;
      if (length < bytes) continue;
      gaps_.erase(gap);
      if (length > bytes) gaps_.emplace(begin + bytes, length - bytes);
      return begin;
    }
    return std::nullopt;
  }

  void give_back(size_t begin, size_t bytes) {
    const auto next = gaps_.find(begin + bytes);
    if (next != gaps_.end()) {
      bytes += next->second;
      gaps_.erase(next);
    }
    const auto after = gaps_.lower_bound(begin);
    if (after != gaps_.begin() && std::prev(after)->first + std::prev(after)->second == begin) {
      std::prev(after)->second += bytes;
    } else {
      gaps_.emplace(begin, bytes);
    }
  }

  // Gives the memory of gaps back to the system, which fills it anew when they are used again.
  void forget_gaps() const {
    for (const auto& [begin, length] : gaps_) forget(data() + begin, data() + begin + length);
  }

  char* data() const { return static_cast<char*>(memory_.get()); }
  size_t bytes() const { return bytes_; }
  bool is_unused() const { return gaps_.size() == 1 && gaps_.begin()->second == bytes_; }

 private:
  c10::DataPtr memory_;
  size_t bytes_;
  std::map<size_t, size_t> gaps_;  // where each begins, and its length
};

struct Block {
  Region* region;
  size_t begin, bytes;
};

class ResultMemory final : public c10::Allocator {
 public:
  // Never destroyed: a result may outlive everything else.
  static ResultMemory& instance() {
    static auto* const memory = new ResultMemory;
    return *memory;
  }

  c10::DataPtr allocate(size_t bytes) override {
    // Not whole pages, as most results would be: CPUs take addresses for the same that differ by whole pages.
    constexpr size_t line = 64;
    auto block = std::make_unique<Block>(take((bytes + line - 1) / line * line + line));
    void* data = block->region->data() + block->begin;
    return {data, block.release(), give_back, at::kCPU};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  static void give_back(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    instance().free(*block);
  }

  void add_user() {
    const std::lock_guard lock(mutex_);
    ++users_;
  }

  void remove_user() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) drop_what_is_not_kept();
  }

 private:
  using Regions = std::vector<std::unique_ptr<Region>>;

  // The newest region is kept, and all new results lie there. The others live for those that users hold.
  bool is_kept(const Region& region) const {
    return users_ > 0 && &region == regions_.back().get() && region.bytes() <= most_bytes_kept;
  }

  Block take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    std::optional<size_t> begin;
    if (!regions_.empty()) begin = regions_.back()->take(bytes);
    if (!begin) {
      // So large that in the end one region holds all, gaps included. What of it is never used costs no memory.
      const size_t largest = regions_.empty() ? 0 : regions_.back()->bytes();
      regions_.push_back(std::make_unique<Region>(std::max(bytes_in_use_ + bytes, largest + largest / 2)));
      begin = regions_.back()->take(bytes);
      drop_what_is_not_kept();
    }
    bytes_in_use_ += bytes;
    return {regions_.back().get(), *begin, bytes};
  }

  void free(const Block& block) {
    const std::lock_guard lock(mutex_);
    bytes_in_use_ -= block.bytes;
    block.region->give_back(block.begin, block.bytes);
    if (is_kept(*block.region)) return;
    char* data = block.region->data() + block.begin;
    forget(data, data + block.bytes);
    std::erase_if(regions_, [&](const auto& region) { return region.get() == block.region && region->is_unused(); });
  }

  void drop_what_is_not_kept() {
    for (const auto& region : regions_) {
      if (!is_kept(*region)) region->forget_gaps();
    }
    std::erase_if(regions_, [&](const auto& region) { return !is_kept(*region) && region->is_unused(); });
  }

  ForkSafeMutex mutex_;
  Regions regions_;  // each larger than the one before
  size_t bytes_in_use_ = 0;
  int64_t users_ = 0;
};

}  // namespace

at::Tensor empty_result(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * options.dtype().itemsize();
  if (bytes < least_bytes) {
    return at::detail::empty_cpu(sizes, options.dtype().toScalarType(), /*pin_memory=*/false,
                                 options.memory_format_opt());
  }
  return at::detail::empty_generic(sizes, &ResultMemory::instance(), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   options.dtype().toScalarType(), options.memory_format_opt());
}

bool gives_back_result_memory(c10::DeleterFnPtr deleter) { return deleter == ResultMemory::give_back; }

KeepsResultMemory::KeepsResultMemory() { ResultMemory::instance().add_user(); }
KeepsResultMemory::~KeepsResultMemory() { ResultMemory::instance().remove_user(); }

}  // namespace ipex::runtime
