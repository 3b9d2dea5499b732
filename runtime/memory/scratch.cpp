#include "memory/scratch.h"

#include <ATen/ops/empty.h>

namespace ipex::runtime {

// One buffer per thread, for every kernel that runs on it. What exceeds the bound is allocated for the call and given
// back.
at::Tensor scratch(size_t bytes) {
  constexpr size_t kept_at_most = size_t{8} << 20;
  const auto allocated = [&] { return at::empty({static_cast<int64_t>(bytes)}, at::kByte); };
  thread_local at::Tensor kept;
  if (bytes > kept_at_most) return allocated();
  if (!kept.defined() || kept.nbytes() < bytes) kept = allocated();
  return kept;
}

}  // namespace ipex::runtime
