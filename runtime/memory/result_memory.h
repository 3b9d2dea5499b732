// Memory for results, which is kept between calls.
//
// malloc takes large blocks from the system one by one and gives them back when they are freed: so calls bring thousands
// of page faults. And where it puts the next result is by chance, so that a call touches twice the memory it needs, which
// caches then don't hold. Here results lie in a region, each in the first gap that it fits into: what one is done with
// the next ones overwrite. docs/decisions/0017-results-lie-in-regions.md
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
