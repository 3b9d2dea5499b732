#include "memory/result_memory.h"

#include <ATen/EmptyTensor.h>

#include "memory/tensor_allocator.h"

namespace ipex::runtime {

at::Tensor empty_result(at::IntArrayRef sizes, const at::TensorOptions& options) {
  // Memory that is not kept comes page by page from the system; malloc keeps some. But it knows no limit.
  const CachingAllocator& all = CachingAllocator::instance();
  if (!all.has_users() && !all.limit()) return at::detail::empty_cpu(sizes, options);
  return TensorAllocator<Holder::result, Segment::shared>::empty(sizes, options);
}

bool gives_back_our_memory(c10::DeleterFnPtr deleter) { return deleter == &CachingAllocator::free; }

KeepsResultMemory::KeepsResultMemory() { CachingAllocator::instance().add_user(); }
KeepsResultMemory::~KeepsResultMemory() { CachingAllocator::instance().remove_user(); }

}  // namespace ipex::runtime
