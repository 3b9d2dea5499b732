#include "memory/weight_memory.h"

#include <cstring>

#include "memory/tensor_allocator.h"

namespace ipex::runtime {

at::Tensor empty_weight(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return TensorAllocator<Holder::weight, Segment::of_its_own>::empty(sizes, options);
}

at::Tensor zero_weight(at::IntArrayRef sizes, const at::TensorOptions& options) {
  at::Tensor weight = empty_weight(sizes, options);
  if (weight.nbytes() > 0) std::memset(weight.mutable_data_ptr(), 0, weight.nbytes());
  return weight;
}

}  // namespace ipex::runtime
