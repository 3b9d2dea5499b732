#include "memory/scratch.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "memory/result_memory.h"

namespace ipex::runtime {
namespace {

constexpr size_t kept_by_a_thread = size_t{8} << 20;

size_t kept_by_all_at_most() {
  static const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  return cores * kept_by_a_thread;
}

std::atomic<size_t> kept_by_all = 0;

// What one thread keeps.
class Kept {
 public:
  ~Kept() { drop(); }

  at::Tensor of(size_t bytes) {
    if (buffer_.defined() && buffer_.nbytes() >= bytes) return buffer_;
    const std::array<int64_t, 1> sizes{static_cast<int64_t>(bytes)};
    if (bytes > kept_by_a_thread) return empty_result(sizes, at::kByte);
    drop();
    if (kept_by_all.fetch_add(bytes) + bytes > kept_by_all_at_most()) {
      kept_by_all -= bytes;
      return empty_result(sizes, at::kByte);
    }
    // Not there: what is kept so long would hold on to a region of results.
    try {
      return buffer_ = at::empty(sizes, at::kByte);
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
  thread_local Kept kept;
  return kept.of(bytes);
}

}  // namespace ipex::runtime
