#include "aot/mapped_file.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "memory/mapped_memory.h"

namespace ipex::runtime {
namespace {

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : value(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int value;
};

}  // namespace

MappedFile::MappedFile(const char* where, const std::string& path) {
  const Descriptor file(path);
  struct stat facts {};
  const bool is_file = file.value >= 0 && ::fstat(file.value, &facts) == 0 && S_ISREG(facts.st_mode);
  TORCH_CHECK(is_file, where, ": expected a file at '", path, "', got none that can be read. Check the path.");
  size_ = static_cast<size_t>(facts.st_size);
  if (size_ == 0) return;
  void* const data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, file.value, 0);
  TORCH_CHECK(data != MAP_FAILED, where, ": expected to map '", path, "', got an error: ", std::strerror(errno), ".");
  data_ = static_cast<char*>(data);
  mapped_file_bytes += static_cast<int64_t>(size_);
}

MappedFile::~MappedFile() {
  if (!data_) return;
  ::munmap(data_, size_);
  mapped_file_bytes -= static_cast<int64_t>(size_);
}

void MappedFile::allow_writes(size_t begin, size_t end) {
  if (begin < end)
    TORCH_CHECK(::mprotect(data_ + begin, end - begin, PROT_READ | PROT_WRITE) == 0, std::strerror(errno));
}

void MappedFile::fetch(size_t begin, size_t end) const {
#ifdef MADV_POPULATE_READ
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  begin = begin / page * page;
  // Older kernels refuse it. Then each page comes when it is touched.
  if (begin < end) ::madvise(data_ + begin, end - begin, MADV_POPULATE_READ);
#endif
}

}  // namespace ipex::runtime
