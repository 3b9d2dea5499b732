#include "aot/checksum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

constexpr size_t piece_bytes = size_t{1} << 20, word_bytes = sizeof(uint64_t), lane_count = 8;
constexpr uint64_t factor = 0x9E3779B97F4A7C15;

// One to one in either argument: so a change of one word always shows.
uint64_t mixed(uint64_t state, uint64_t word) { return std::rotl((state ^ word) * factor, 29); }

uint64_t checksum_of_piece(const char* data, size_t bytes) {
  std::array<uint64_t, lane_count> lanes;
  for (size_t i = 0; i < lane_count; ++i) lanes[i] = factor * (i + 1);
  std::array<uint64_t, lane_count> words{};
  size_t done = 0;
  for (; bytes - done >= sizeof(words); done += sizeof(words)) {
    std::memcpy(words.data(), data + done, sizeof(words));
    for (size_t i = 0; i < lane_count; ++i) lanes[i] = mixed(lanes[i], words[i]);
  }
  const size_t rest = bytes - done;
  words = {};
  std::memcpy(words.data(), data + done, rest);
  for (size_t i = 0; i * word_bytes < rest; ++i) lanes[i] = mixed(lanes[i], words[i]);
  uint64_t sum = bytes;
  for (const uint64_t lane : lanes) sum = mixed(sum, lane);
  return sum;
}

}  // namespace

uint64_t checksum(const void* data, size_t bytes) {
  const auto* first = static_cast<const char*>(data);
  if (bytes <= piece_bytes) return checksum_of_piece(first, bytes);
  std::vector<uint64_t> sums((bytes + piece_bytes - 1) / piece_bytes);
  parallel_for(static_cast<int64_t>(sums.size()), /*grain_size=*/4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const size_t offset = i * piece_bytes;
      sums[i] = checksum_of_piece(first + offset, std::min(piece_bytes, bytes - offset));
    }
  });
  return checksum(sums.data(), sums.size() * word_bytes);
}

}  // namespace ipex::runtime
