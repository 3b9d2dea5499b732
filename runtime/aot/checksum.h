// A checksum of bytes: 64 bits, as fast as memory is read. It finds damage, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ipex::runtime {

// Large pieces are read by several threads. The number of threads does not change the result.
//
// A piece of at most 1 MiB: eight lanes begin with 1 to 8 times k = 0x9E3779B97F4A7C15. Lane i takes the little-endian
// words i, i + 8, ... as lane = rotate_left((lane ^ word) * k, 29); the last word is filled up with zeros. Then h begins
// with the number of bytes, and takes the lanes in order in the same way. Of more bytes: the words are the checksums of
// its pieces of 1 MiB.
uint64_t checksum(const void* data, size_t bytes);

}  // namespace ipex::runtime
