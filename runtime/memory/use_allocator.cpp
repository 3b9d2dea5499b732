// ipex::UseAllocator: tensors of one thread that torch allocates come from our allocator.
#include <c10/core/CPUAllocator.h>
#include <ipex/memory.h>

#include <atomic>
#include <mutex>

#include "memory/allocator.h"

namespace ipex {
namespace {

using runtime::CachingAllocator;

// How many guards a thread has. Another thread may end one, and after this one has ended.
using Count = std::shared_ptr<std::atomic<int>>;
thread_local const std::atomic<int>* guards_of_this_thread = nullptr;  // to be read while the thread ends, too

const Count& count_of_this_thread() {
  struct Kept {
    Kept() { guards_of_this_thread = count.get(); }
    ~Kept() { guards_of_this_thread = nullptr; }
    Count count = std::make_shared<std::atomic<int>>(0);
  };
  thread_local const Kept kept;
  return kept.count;
}

bool has_guard() { return guards_of_this_thread != nullptr && *guards_of_this_thread > 0; }

// Stands before torch's allocator, and hands on to it what is not asked for by a thread with a guard.
class Before final : public c10::Allocator {
 public:
  // Never destroyed: a tensor may outlive everything else.
  static Before& instance() {
    static auto* const before = new Before;
    return *before;
  }

  // Puts itself before whatever allocator torch has now.
  void install() {
    if (c10::GetCPUAllocator() == this) return;
    const std::lock_guard lock(mutex_);
    c10::Allocator* const now = c10::GetCPUAllocator();
    if (now == this) return;
    next_ = now;
    c10::SetCPUAllocator(this);
    TORCH_CHECK(
        c10::GetCPUAllocator() == this,
        "ipex::UseAllocator: expected a CPU allocator that may be replaced, got one of a higher priority than 0. "
        "Use either of the two.");
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (!has_guard() || bytes == 0) return next_.load()->allocate(bytes);
    void* data = CachingAllocator::instance().allocate(bytes, runtime::Holder::result);
    return {data, data, &CachingAllocator::free, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_either; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  // Memory that was allocated raw comes back without a word about who gave it.
  static void free_either(void* data) {
    CachingAllocator& ours = CachingAllocator::instance();
    data&& ours.owns(data) ? ours.free(data) : instance().next_.load()->raw_deallocate(data);
  }

  std::mutex mutex_;
  std::atomic<c10::Allocator*> next_ = nullptr;
};

}  // namespace

UseAllocator::UseAllocator() : count_(count_of_this_thread()) {
  Before::instance().install();
  CachingAllocator::instance().add_user();
  ++*count_;
}

UseAllocator::~UseAllocator() {
  --*count_;
  CachingAllocator::instance().remove_user();
}

}  // namespace ipex
