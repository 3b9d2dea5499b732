#include "memory/region.h"

#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <new>
#include <utility>

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
  const auto gap =
      std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& candidate) { return candidate.second >= bytes; });
  if (gap == gaps_.end()) return nullptr;
  if (spare_.capacity() < spare_.size() + 2) spare_.reserve(2 * spare_.size() + 2);
  Gaps one{{0, 0}};  // from here on nothing throws
  spare_.push_back(one.extract(one.begin()));
  Gaps::node_type node = gaps_.extract(gap);
  const size_t begin = node.key();
  node.key() += bytes;
  node.mapped() -= bytes;
  if (node.mapped() > 0) {
    gaps_.insert(std::move(node));
  } else {
    spare_.push_back(std::move(node));
  }
  used_ += bytes;
  return new (memory_ + begin) Block{.bytes = bytes, .region = this};
}

void Region::give_back(Block* block) noexcept {
  size_t begin = block->address() - memory_, bytes = block->bytes;
  used_ -= bytes;
  Gaps::node_type node;
  const auto next = gaps_.find(begin + bytes);
  if (next != gaps_.end()) {
    bytes += next->second;
    node = gaps_.extract(next);
  }
  const auto after = gaps_.lower_bound(begin);
  if (after != gaps_.begin() && std::prev(after)->first + std::prev(after)->second == begin) {
    std::prev(after)->second += bytes;
    if (node) return;  // one gap less, as there is one block less
  } else {
    if (!node) {
      node = std::move(spare_.back());
      spare_.pop_back();
    }
    node.key() = begin;
    node.mapped() = bytes;
    gaps_.insert(std::move(node));
  }
  spare_.pop_back();
}

void Region::forget_gaps() const {
  for (const auto& [begin, length] : gaps_) forget(memory_ + begin, memory_ + begin + length);
}

}  // namespace ipex::runtime
