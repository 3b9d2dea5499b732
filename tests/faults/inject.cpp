// Loaded before everything else (LD_PRELOAD): the n-th allocation that ipex asks for fails, as if there were no memory.
//
//   operator new        throws std::bad_alloc, or gives null where it may not throw
//   malloc and the like give null, and posix_memalign ENOMEM: oneDNN's objects, torch's tensors
//   mmap, mprotect      fail: pages of oneDNN's code, mapped files
//
// Ipex asks for it where the caller lies in its libraries, or the caller of the C++ library, or one of the nearest on the
// way to c10, which makes tensors' memory. Nothing is looked at while it is not armed.
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

struct Range {
  uintptr_t begin, end;
  bool holds(uintptr_t address) const { return begin <= address && address < end; }
};

constexpr int most_ranges = 16, most_frames = 24, frames_to_c10 = 14;
Range ours[most_ranges], c10[most_ranges], standard[most_ranges];  // standard: the C++ library, and this one
int ours_count = 0, c10_count = 0, standard_count = 0;

std::atomic<bool> is_armed{false};
std::atomic<long> count{0}, failing{-1}, failed{0};
uintptr_t failed_at[most_frames];

// Spared is what code of others takes within our libraries, where it can't bear a refusal and ends the process: the
// constructors of c10::Dict, which are noexcept; torch's executor where it copies attributes of nodes; pybind11 when it
// registers a new object. How much they take tells.
struct Spared {
  bool in_extension;
  size_t bytes;
};
constexpr Spared spared[] = {{false, 224}, {false, 56}, {false, 48}, {true, 24}};
bool is_extension[most_ranges];

thread_local bool is_looking __attribute__((tls_model("initial-exec"))) = false;

bool is_in(const Range* ranges, int ranges_count, uintptr_t address) {
  for (int i = 0; i < ranges_count; ++i) {
    if (ranges[i].holds(address)) return true;
  }
  return false;
}

bool is_spared(uintptr_t address, size_t bytes) {
  for (int i = 0; i < ours_count; ++i) {
    if (!ours[i].holds(address)) continue;
    for (const Spared& each : spared) {
      if (each.in_extension == is_extension[i] && each.bytes == bytes) return true;
    }
  }
  return false;
}

bool is_ours(uintptr_t address) { return is_in(ours, ours_count, address); }

struct Frames {
  int count = 0, ours = 0;
  bool keeps = false;                  // them all; else the first one ends the walk
  bool goes_through_standard = false;  // nothing but that library may come before
};

_Unwind_Reason_Code look_at(_Unwind_Context* context, void* to) {
  auto& frames = *static_cast<Frames*>(to);
  const uintptr_t address = _Unwind_GetIP(context);
  if (is_ours(address)) {
    if (frames.keeps) failed_at[frames.ours] = address;
    ++frames.ours;
    if (!frames.keeps) return _URC_END_OF_STACK;
  } else if (frames.goes_through_standard && !is_in(standard, standard_count, address)) {
    return _URC_END_OF_STACK;
  }
  return ++frames.count < (frames.keeps ? most_frames : frames_to_c10) ? _URC_NO_REASON : _URC_END_OF_STACK;
}

// For a debugger's breakpoint.
__attribute__((noinline)) void faults_fails_now() { asm volatile(""); }

bool fails(void* caller, bool may_be_of_tensor = false) {
  if (!is_armed.load(std::memory_order_relaxed) || is_looking) return false;
  const auto address = reinterpret_cast<uintptr_t>(caller);
  bool is_asked_for = is_ours(address);
  const bool is_from_standard = is_in(standard, standard_count, address);
  if (!is_asked_for && (is_from_standard || (may_be_of_tensor && is_in(c10, c10_count, address)))) {
    is_looking = true;
    Frames frames{.goes_through_standard = is_from_standard};
    _Unwind_Backtrace(look_at, &frames);
    is_looking = false;
    is_asked_for = frames.ours > 0;
  }
  if (!is_asked_for || count++ != failing) return false;
  is_looking = true;
  Frames frames{.keeps = true};
  _Unwind_Backtrace(look_at, &frames);
  is_looking = false;
  failed = frames.ours > 0 ? frames.ours : 1;
  faults_fails_now();
  return true;
}

void* memory_of_new(size_t bytes, size_t alignment, void* caller, bool may_throw) {
  void* memory = nullptr;
  if (is_spared(reinterpret_cast<uintptr_t>(caller), bytes) || !fails(caller))
    memory = alignment ? __libc_memalign(alignment, bytes ? bytes : 1) : __libc_malloc(bytes ? bytes : 1);
  if (!memory && may_throw) throw std::bad_alloc();
  return memory;
}

}  // namespace

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

void* operator new(size_t bytes) { return memory_of_new(bytes, 0, CALLER, true); }
void* operator new[](size_t bytes) { return memory_of_new(bytes, 0, CALLER, true); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return memory_of_new(bytes, 0, CALLER, false); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return memory_of_new(bytes, 0, CALLER, false); }
void* operator new(size_t bytes, std::align_val_t to) {
  return memory_of_new(bytes, static_cast<size_t>(to), CALLER, true);
}
void* operator new[](size_t bytes, std::align_val_t to) {
  return memory_of_new(bytes, static_cast<size_t>(to), CALLER, true);
}

extern "C" {

void* malloc(size_t bytes) {
  if (!fails(CALLER)) return __libc_malloc(bytes);
  errno = ENOMEM;
  return nullptr;
}

void* calloc(size_t number, size_t bytes) {
  if (!fails(CALLER)) return __libc_calloc(number, bytes);
  errno = ENOMEM;
  return nullptr;
}

void* realloc(void* memory, size_t bytes) {
  if (!fails(CALLER)) return __libc_realloc(memory, bytes);
  errno = ENOMEM;
  return nullptr;
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  if (!fails(CALLER)) return __libc_memalign(alignment, bytes);
  errno = ENOMEM;
  return nullptr;
}

int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  if (fails(CALLER, /*may_be_of_tensor=*/true)) return ENOMEM;
  void* const found = __libc_memalign(alignment, bytes);
  if (!found) return ENOMEM;
  *memory = found;
  return 0;
}

void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (fails(CALLER)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}

int mprotect(void* address, size_t bytes, int protection) {
  if (!fails(CALLER)) return static_cast<int>(syscall(SYS_mprotect, address, bytes, protection));
  errno = ENOMEM;
  return -1;
}

// To be called once ipex is loaded. How many of its libraries there are.
int faults_find_libraries() {
  ours_count = c10_count = standard_count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void*) {
        const char* const slash = strrchr(info->dlpi_name, '/');
        const char* const name = slash ? slash + 1 : info->dlpi_name;
        const bool is_extension_of_ipex = strstr(info->dlpi_name, "/ipex/_C.") != nullptr;
        const bool is_of_ipex = is_extension_of_ipex || strncmp(name, "libipex", 7) == 0;
        const bool is_c10 = strncmp(name, "libc10.", 7) == 0, is_libstdcpp = strncmp(name, "libstdc++", 9) == 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          if (header.p_type != PT_LOAD || !(header.p_flags & PF_X)) continue;
          const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
          const bool is_this = Range{begin, begin + header.p_memsz}.holds(reinterpret_cast<uintptr_t>(&memory_of_new));
          const bool is_standard = is_libstdcpp || is_this;
          if (is_of_ipex && ours_count < most_ranges) {
            is_extension[ours_count] = is_extension_of_ipex;
            ours[ours_count++] = {begin, begin + header.p_memsz};
          }
          if (is_c10 && c10_count < most_ranges) c10[c10_count++] = {begin, begin + header.p_memsz};
          if (is_standard && standard_count < most_ranges) {
            standard[standard_count++] = {begin, begin + header.p_memsz};
          }
        }
        return 0;
      },
      nullptr);
  return ours_count;
}

// From now on allocations are counted, and number n, from 0 on, fails. None does where n is negative.
void faults_arm(long n) {
  count = 0;
  failed = 0;
  failing = n;
  is_armed = true;
}

// How many there were.
long faults_disarm() {
  is_armed = false;
  return count;
}

// How many frames of ipex the one that failed had, 0 where none failed; and place `i`: a library, and where in it.
long faults_frames() { return failed; }
const char* faults_library(int i) {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(failed_at[i]), &info) ? info.dli_fname : "";
}
uintptr_t faults_offset(int i) {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(failed_at[i]), &info)
             ? failed_at[i] - reinterpret_cast<uintptr_t>(info.dli_fbase)
             : 0;
}

// Bytes that malloc has given out.
size_t faults_heap_bytes() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // extern "C"
