#include "memory/scratch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "memory/tensor_allocator.h"

namespace ipex::runtime {
namespace {

constexpr size_t kept_by_a_thread = size_t{8} << 20;

size_t kept_by_all_at_most() {
  static const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  return cores * kept_by_a_thread;
}

std::atomic<size_t> kept_by_all = 0;

using Kept = TensorAllocator<Holder::scratch, Segment::of_its_own>;
using ForOneCall = TensorAllocator<Holder::scratch, Segment::shared>;

// What one thread keeps.
class Buffer {
 public:
  ~Buffer() { drop(); }

  at::Tensor of(size_t bytes) {
    if (buffer_.defined() && buffer_.nbytes() >= bytes) return buffer_;
    const std::array<int64_t, 1> sizes{static_cast<int64_t>(bytes)};
    if (bytes > kept_by_a_thread) return ForOneCall::empty(sizes, at::kByte);
    drop();
    if (kept_by_all.fetch_add(bytes) + bytes > kept_by_all_at_most()) {
      kept_by_all -= bytes;
      return ForOneCall::empty(sizes, at::kByte);
    }
    try {
      return buffer_ = Kept::empty(sizes, at::kByte);
    } catch (...) {
      kept_by_all -= bytes;
      throw;
    }
  }

 private:
  void drop() {
    if (buffer_.defined()) kept_by_all -= buffer_.nbytes();
    buffer_.reset();
  }

  at::Tensor buffer_;
};

}  // namespace

at::Tensor scratch(size_t bytes) {
  thread_local Buffer buffer;
  return buffer.of(bytes);
}

}  // namespace ipex::runtime
