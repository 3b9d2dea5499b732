// A segment in which many blocks lie, and the gaps between them.
#pragma once

#include <map>
#include <vector>

#include "memory/block.h"

namespace ipex::runtime {

// Huge ones hold 2 MiB: what is read from end to end at every call is read up to three times as fast, because the CPU has
// translations for all of it.
enum class Pages : bool { ordinary, huge };
constexpr size_t huge_page = size_t{2} << 20;

class Region {
 public:
  // Throws c10::Error where the system gives no memory. Where it has no huge pages, or is not to be asked, they are ordinary.
  explicit Region(size_t bytes, Pages pages = Pages::ordinary);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // A block in the first gap that it fits into. Null where there is none. May throw std::bad_alloc, and has then done nothing.
  Block* take(size_t bytes);
  // Never throws: memory is given back when there is none.
  void give_back(Block* block) noexcept;

  // Gives the memory of gaps back to the system, which fills it anew when they are used again.
  void forget_gaps() const;

  const char* data() const { return memory_; }
  size_t bytes() const { return bytes_; }
  bool contains(const void* address) const { return address >= memory_ && address < memory_ + bytes_; }
  bool is_unused() const { return used_ == 0; }
  // Gaps that can't go back to the system by themselves, because there are blocks between them.
  int64_t split_gaps() const { return is_unused() ? 0 : static_cast<int64_t>(gaps_.size()); }
  int64_t split_bytes() const { return is_unused() ? 0 : static_cast<int64_t>(bytes_ - used_); }
  // Calls visit(address, bytes, block), where `block` is null for a gap, in the order of addresses.
  template <typename Visit>
  void for_each_piece(Visit&& visit) const {
    for (size_t begin = 0; begin < bytes_;) {
      const auto gap = gaps_.find(begin);
      const auto* block = gap == gaps_.end() ? reinterpret_cast<const Block*>(memory_ + begin) : nullptr;
      const size_t bytes = block ? block->bytes : gap->second;
      visit(memory_ + begin, bytes, block);
      begin += bytes;
    }
  }

 private:
  char* const memory_;
  const size_t bytes_;
  const Pages pages_;
  size_t used_ = 0;
  using Gaps = std::map<size_t, size_t>;  // where each begins, and its length
  Gaps gaps_;
  // For gaps that blocks leave: with those in use there is one more than there are blocks, and there are no more gaps than that.
  std::vector<Gaps::node_type> spare_;
};

}  // namespace ipex::runtime
