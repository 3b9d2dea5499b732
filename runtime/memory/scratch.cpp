#include "memory/scratch.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <thread>

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
    const auto allocated = [&] { return at::empty({static_cast<int64_t>(bytes)}, at::kByte); };
    if (bytes > kept_by_a_thread) return allocated();
    drop();
    const at::Tensor buffer = allocated();
    if (kept_by_all.fetch_add(bytes) + bytes <= kept_by_all_at_most()) {
      buffer_ = buffer;
    } else {
      kept_by_all -= bytes;
    }
    return buffer;
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
