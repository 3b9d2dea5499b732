// What oneDNN gets where the system has no memory: std::bad_alloc.
//
// Its classes have an operator new that hands on what posix_memalign gives, and construct an object at null. The linker gives
// it this posix_memalign: runtime/CMakeLists.txt.
#include <cstddef>
#include <new>

extern "C" {

int __real_posix_memalign(void** memory, size_t alignment, size_t bytes);

int __wrap_posix_memalign(void** memory, size_t alignment, size_t bytes) {
  if (__real_posix_memalign(memory, alignment, bytes) != 0) throw std::bad_alloc();
  return 0;
}

}  // extern "C"
