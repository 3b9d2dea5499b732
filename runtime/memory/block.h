// A piece of memory that was handed out, with what its owner must know of it in the line before.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ipex::runtime {

class Region;

// What memory is for.
enum class Holder : uint8_t { result, scratch, weight };

constexpr size_t line = 64;
constexpr size_t least_large_bytes = size_t{1} << 20;  // a request from here on belongs to the large pool

// It takes a line before the memory itself. So results don't begin at whole pages, as most would: CPUs take addresses for
// the same that differ by whole pages.
struct alignas(line) Block {
  size_t bytes;              // this line included
  Region* region = nullptr;  // null: a segment of its own
  Block* next = nullptr;     // of those that a thread keeps
  int8_t size_class = -1;    // of what threads keep; negative for others
  Holder holder = Holder::result;
  bool is_large = false;
  bool is_in_use = false;

  char* data() { return reinterpret_cast<char*>(this) + sizeof(Block); }
  const char* address() const { return reinterpret_cast<const char*>(this); }
  static Block* of(void* data) { return reinterpret_cast<Block*>(static_cast<char*>(data) - sizeof(Block)); }
};
static_assert(sizeof(Block) == line);

// Of the block for so many bytes.
constexpr size_t block_bytes(size_t bytes) { return (bytes + line - 1) / line * line + line; }

}  // namespace ipex::runtime
