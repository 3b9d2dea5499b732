// Copies of a few bytes, as the channels of a pixel are: cheaper than the call of memcpy.
#pragma once

#include <cstdint>
#include <cstring>

namespace ipex::runtime {

// The last part may overlap with the one before.
template <int64_t size>
void copy_in_parts_of(char* to, const char* from, int64_t bytes) {
  const auto copy_part = [&](int64_t at) { std::memcpy(to + at, from + at, size); };
  for (int64_t i = 0; i + size < bytes; i += size) copy_part(i);
  copy_part(bytes - size);
}

inline void copy_short_run(char* to, const char* from, int64_t bytes) {
  if (bytes >= 16) return copy_in_parts_of<16>(to, from, bytes);
  if (bytes >= 8) return copy_in_parts_of<8>(to, from, bytes);
  if (bytes >= 4) return copy_in_parts_of<4>(to, from, bytes);
  for (int64_t i = 0; i < bytes; ++i) to[i] = from[i];
}

}  // namespace ipex::runtime
