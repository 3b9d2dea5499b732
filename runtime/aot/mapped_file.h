// A whole file in memory, read as it is touched, and shared with other processes that map it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ipex::runtime {

class MappedFile {
 public:
  // Throws where the file can't be opened or mapped. `where` is for the message.
  MappedFile(const char* where, const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view bytes() const { return {data_, size_}; }
  bool holds(const void* address) const { return address >= data_ && address < data_ + size_; }

  // Lets the process write to whole pages. What it writes is its own: neither the file nor other processes change.
  void allow_writes(size_t begin, size_t end);
  // Asks for pages that are about to be read.
  void fetch(size_t begin, size_t end) const;

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace ipex::runtime
