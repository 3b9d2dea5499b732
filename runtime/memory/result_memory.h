// Memory for results, which is kept between calls: memory/allocator.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// As at::empty, for tensors on the CPU.
at::Tensor empty_result(at::IntArrayRef sizes, const at::TensorOptions& options);

// Whether this deleter is that of memory from our allocator.
bool gives_back_our_memory(c10::DeleterFnPtr deleter);

// While one of these lives, memory is kept.
class KeepsResultMemory {
 public:
  KeepsResultMemory();
  ~KeepsResultMemory();
  KeepsResultMemory(const KeepsResultMemory&) = delete;
  KeepsResultMemory& operator=(const KeepsResultMemory&) = delete;
};

}  // namespace ipex::runtime
