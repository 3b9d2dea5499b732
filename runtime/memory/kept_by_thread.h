// Small blocks that a thread is done with, for its next results: taking one needs no lock that others wait for.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "memory/block.h"
#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {

// A size class is that of all blocks of `bytes`: multiples of a line up to 512 bytes, then four to each doubling.
struct SizeClass {
  int8_t index;
  size_t bytes;
};
constexpr size_t most_bytes_of_a_class = size_t{80} << 10;
constexpr int size_classes = 37;
// For a block of so many bytes, at most most_bytes_of_a_class.
SizeClass size_class_of(size_t bytes);

class KeptByThread {
 public:
  // Null while the thread ends, and where there is no memory for it. Never throws.
  static KeptByThread* of_this_thread();

  // Blocks that were taken, since the process started: their number and bytes.
  struct Taken {
    int64_t count = 0, bytes = 0;
  };

  // Null where there is none. on_take(block) runs under the lock that all_locked() takes, as does on_keep(block).
  template <typename OnTake>
  Block* take(SizeClass wanted, OnTake&& on_take) {
    const std::lock_guard lock(mutex_);
    Block* block = first_[wanted.index];
    if (!block) return nullptr;
    first_[wanted.index] = block->next;
    bytes_ -= block->bytes;
    ++taken_.count;
    taken_.bytes += static_cast<int64_t>(block->bytes);
    on_take(block);
    return block;
  }

  // False where the thread keeps enough.
  template <typename OnKeep>
  bool keep(Block* block, OnKeep&& on_keep) {
    const std::lock_guard lock(mutex_);
    if (bytes_ + block->bytes > most_bytes) return false;
    bytes_ += block->bytes;
    block->next = first_[block->size_class];
    first_[block->size_class] = block;
    on_keep(block);
    return true;
  }

  // What all threads keep, as a list: they keep it no longer.
  static Block* empty_all();

  // While one of these lives no thread takes or keeps a block.
  class AllLocked {
   public:
    AllLocked();
    ~AllLocked();
    AllLocked(const AllLocked&) = delete;
    AllLocked& operator=(const AllLocked&) = delete;
    // By all threads, those that have ended included.
    Taken taken() const;

   private:
    ForkWaits fork_waits_;
  };

  KeptByThread();
  ~KeptByThread();

 private:
  static constexpr size_t most_bytes = size_t{512} << 10;

  // Puts what is kept before `list`.
  Block* empty(Block* list);

  ForkSafeMutex mutex_;
  std::array<Block*, size_classes> first_{};
  size_t bytes_ = 0;
  Taken taken_;
};

// Gives blocks that no thread keeps any more back to the system: defined by the allocator.
void drop_blocks(Block* list);

}  // namespace ipex::runtime
