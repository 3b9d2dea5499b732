// Our allocator as torch's tensors take one.
#pragma once

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "memory/allocator.h"

namespace ipex::runtime {

enum class Segment : bool { shared, of_its_own };

template <Holder holder, Segment segment>
class TensorAllocator final : public c10::Allocator {
 public:
  // Never destroyed: a tensor may outlive everything else.
  static TensorAllocator* instance() {
    static auto* const allocator = new TensorAllocator;
    return allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    if (bytes > 0) {
      CachingAllocator& all = CachingAllocator::instance();
      data = segment == Segment::shared ? all.allocate(bytes, holder) : all.allocate_apart(bytes, holder);
      if (c10::memoryProfilingEnabled()) c10::profiledCPUMemoryReporter().New(data, bytes);
    }
    return {data, data, &CachingAllocator::free, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &CachingAllocator::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  static at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options) {
    return at::detail::empty_generic(sizes, instance(), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                     options.dtype().toScalarType(), options.memory_format_opt());
  }
};

}  // namespace ipex::runtime
