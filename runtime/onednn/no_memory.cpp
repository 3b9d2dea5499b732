#include "onednn/no_memory.h"

#include <cstddef>
#include <new>

// oneDNN's classes have an operator new that hands on what posix_memalign gives, and construct an object at null. The linker gives
// them this one: runtime/CMakeLists.txt.
extern "C" {

int __real_posix_memalign(void** memory, size_t alignment, size_t bytes);

int __wrap_posix_memalign(void** memory, size_t alignment, size_t bytes) {
  if (__real_posix_memalign(memory, alignment, bytes) != 0) throw std::bad_alloc();
  return 0;
}

}  // extern "C"

// As in the header of Xbyak, with which oneDNN writes code, and which it does not install. In one library, both are one variable.
namespace Xbyak::local {

inline int& GetErrorRef() {
  static thread_local int err = 0;
  return err;
}

}  // namespace Xbyak::local

namespace ipex::runtime {

void forget_lack_of_pages() { Xbyak::local::GetErrorRef() = 0; }

}  // namespace ipex::runtime
