#include "memory/weight_memory.h"

#include "memory/tensor_allocator.h"

namespace ipex::runtime {

at::Tensor empty_weight(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return TensorAllocator<Holder::weight, Segment::of_its_own>::empty(sizes, options);
}

}  // namespace ipex::runtime
