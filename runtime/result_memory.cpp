#include "result_memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

namespace ipex::runtime {
namespace {

// Smaller results stay in malloc's hands, which mostly keeps them: with more sizes to keep, large ones would have to go.
constexpr size_t least_bytes = size_t{8} << 20, most_bytes_kept = size_t{512} << 20;

struct Block {
  c10::DataPtr memory;
  size_t bytes;
};
using Blocks = std::vector<std::unique_ptr<Block>>;  // the oldest first

class ResultMemory final : public c10::Allocator {
 public:
  // Never destroyed: a result may outlive everything else.
  static ResultMemory& instance() {
    static auto* const memory = new ResultMemory;
    return *memory;
  }

  c10::DataPtr allocate(size_t bytes) override {
    std::unique_ptr<Block> block = take(bytes);
    if (!block) {
      make_room(bytes);
      block = std::make_unique<Block>(c10::GetDefaultCPUAllocator()->allocate(bytes), bytes);
      const std::lock_guard lock(mutex_);
      bytes_in_use_ += bytes;
      most_bytes_in_use_ = std::max(most_bytes_in_use_, bytes_in_use_);
    }
    void* data = block->memory.get();
    return {data, block.release(), give_back, at::kCPU};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  static void give_back(void* block) { instance().keep(std::unique_ptr<Block>(static_cast<Block*>(block))); }

  void add_user() {
    const std::lock_guard lock(mutex_);
    ++users_;
  }

  void remove_user() {
    Blocks unneeded;  // freed after the lock
    const std::lock_guard lock(mutex_);
    if (--users_ > 0) return;
    unneeded.swap(kept_);
    bytes_kept_ = 0;
    most_bytes_in_use_ = bytes_in_use_;
  }

 private:
  // The smallest kept block that this fits into without much waste. None when there is none.
  std::unique_ptr<Block> take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto best = kept_.end();
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
      const size_t own = (*it)->bytes;
      if (own >= bytes && own <= bytes + bytes / 8 && (best == kept_.end() || own < (*best)->bytes)) best = it;
    }
    if (best == kept_.end()) return nullptr;
    std::unique_ptr<Block> block = std::move(*best);
    kept_.erase(best);
    bytes_kept_ -= block->bytes;
    bytes_in_use_ += block->bytes;
    return block;
  }

  // Frees what was kept longest, for as long as there would be more than twice what has been in use at once: sizes differ,
  // and a block kept for one result is not there for another.
  void make_room(size_t bytes) {
    Blocks unneeded;
    const std::lock_guard lock(mutex_);
    while (!kept_.empty() && bytes_in_use_ + bytes_kept_ + bytes > 2 * most_bytes_in_use_) {
      bytes_kept_ -= kept_.front()->bytes;
      unneeded.push_back(std::move(kept_.front()));
      kept_.erase(kept_.begin());
    }
  }

  void keep(std::unique_ptr<Block> block) {
    const std::lock_guard lock(mutex_);
    bytes_in_use_ -= block->bytes;
    if (users_ == 0 || bytes_kept_ + block->bytes > most_bytes_kept) return;
    bytes_kept_ += block->bytes;
    kept_.push_back(std::move(block));
  }

  std::mutex mutex_;
  Blocks kept_;
  size_t bytes_kept_ = 0, bytes_in_use_ = 0, most_bytes_in_use_ = 0;
  int64_t users_ = 0;
};

}  // namespace

at::Tensor empty_result(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * options.dtype().itemsize();
  if (bytes < least_bytes) return at::empty(sizes, options);
  return at::detail::empty_generic(sizes, &ResultMemory::instance(), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   options.dtype().toScalarType(), options.memory_format_opt());
}

bool gives_back_result_memory(c10::DeleterFnPtr deleter) { return deleter == ResultMemory::give_back; }

KeepsResultMemory::KeepsResultMemory() { ResultMemory::instance().add_user(); }
KeepsResultMemory::~KeepsResultMemory() { ResultMemory::instance().remove_user(); }

}  // namespace ipex::runtime
