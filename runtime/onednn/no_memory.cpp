// What oneDNN gets where the system has no memory: std::bad_alloc.
//
// Its classes have an operator new that hands on what posix_memalign gives, and construct an object at null. The linker gives
// it this posix_memalign: runtime/CMakeLists.txt.
//
// And Xbyak, with which it writes code, remembers of each thread that there were no pages for code. oneDNN never clears that,
// and makes no more kernels in the thread.
#include "onednn/no_memory.h"

#include <cstddef>
#include <new>

// As in Xbyak's own header, which is not among those that oneDNN installs. In one library, both are one variable.
namespace Xbyak::local {

inline int& GetErrorRef() {
  static thread_local int err = 0;
  return err;
}

}  // namespace Xbyak::local

namespace ipex::runtime {

void forget_error_of_xbyak() { Xbyak::local::GetErrorRef() = 0; }

}  // namespace ipex::runtime

extern "C" {

int __real_posix_memalign(void** memory, size_t alignment, size_t bytes);

int __wrap_posix_memalign(void** memory, size_t alignment, size_t bytes) {
  if (__real_posix_memalign(memory, alignment, bytes) != 0) throw std::bad_alloc();
  return 0;
}

}  // extern "C"
