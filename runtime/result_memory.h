// Memory for large results, which is kept between calls.
//
// malloc takes large blocks from the system one by one and gives them back when they are freed: so a batch of images
// brings thousands of page faults with every call (docs/decisions/0016-memory-of-large-results-is-kept.md). Here a block
// that is done with is kept for the next result of about its size. In use and kept there is never more than twice what
// has been in use at once, and nothing is kept when the last model is gone.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// As at::empty, for tensors on the CPU.
at::Tensor empty_result(at::IntArrayRef sizes, const at::TensorOptions& options);

// Whether this deleter is that of memory from here.
bool gives_back_result_memory(c10::DeleterFnPtr deleter);

// While one of these lives, memory is kept.
class KeepsResultMemory {
 public:
  KeepsResultMemory();
  ~KeepsResultMemory();
  KeepsResultMemory(const KeepsResultMemory&) = delete;
  KeepsResultMemory& operator=(const KeepsResultMemory&) = delete;
};

}  // namespace ipex::runtime
