#include "memory/region.h"

#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <iterator>
#include <new>

#include "memory/memory_pages.h"

namespace ipex::runtime {

namespace {

char* memory_of(size_t bytes, Pages pages) {
  if (pages == Pages::ordinary) return static_cast<char*>(c10::alloc_cpu(bytes));
  void* memory = std::aligned_alloc(huge_page, bytes);
  TORCH_CHECK(memory, "ipex: the system has no ", bytes, " bytes more.");
  ask_for_huge_pages(memory, bytes);
  return static_cast<char*>(memory);
}

}  // namespace

Region::Region(size_t bytes, Pages pages) : memory_(memory_of(bytes, pages)), bytes_(bytes), pages_(pages) {
  gaps_.emplace(0, bytes);
}

Region::~Region() { pages_ == Pages::ordinary ? c10::free_cpu(memory_) : std::free(memory_); }

Block* Region::take(size_t bytes) {
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    const auto [begin, length] = *gap;
    if (length < bytes) continue;
    gaps_.erase(gap);
    if (length > bytes) gaps_.emplace(begin + bytes, length - bytes);
    used_ += bytes;
    return new (memory_ + begin) Block{.bytes = bytes, .region = this};
  }
  return nullptr;
}

void Region::give_back(Block* block) {
  size_t begin = block->address() - memory_, bytes = block->bytes;
  used_ -= bytes;
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

void Region::forget_gaps() const {
  for (const auto& [begin, length] : gaps_) forget(memory_ + begin, memory_ + begin + length);
}

}  // namespace ipex::runtime
