#include "memory/memory_pages.h"

#include <c10/core/CPUAllocator.h>

#include "memory/result_memory.h"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace ipex::runtime {

bool is_ours_alone(const at::Tensor& tensor) {
  const c10::DeleterFnPtr deleter = tensor.storage().data_ptr().get_deleter();
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         (deleter == c10::GetDefaultCPUAllocator()->raw_deleter() || gives_back_our_memory(deleter));
}

void forget([[maybe_unused]] void* begin, [[maybe_unused]] void* end) {
#ifdef __linux__
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const uintptr_t last = reinterpret_cast<uintptr_t>(end) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
#endif
}

void ask_for_huge_pages([[maybe_unused]] void* begin, [[maybe_unused]] size_t bytes) {
#ifdef __linux__
  madvise(begin, bytes, MADV_HUGEPAGE);
#endif
}

}  // namespace ipex::runtime
