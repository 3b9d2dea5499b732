// Figures over time: how much there is, the most there was, and how much came and went.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ipex::runtime {

// Changed under a lock of its owner's.
struct Tally {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;

  void add(int64_t amount) {
    current += amount;
    allocated += amount;
    peak = std::max(peak, current);
  }
  void remove(int64_t amount) {
    current -= amount;
    freed += amount;
  }
  // From one value to another.
  void change(int64_t before, int64_t after) { after > before ? add(after - before) : remove(before - after); }
  void reset_peak() { peak = current; }
  void reset_accumulated() { allocated = freed = 0; }
};

// How many of something there are, and their bytes.
struct Tallies {
  Tally count, bytes;

  void add(size_t size) {
    count.add(1);
    bytes.add(static_cast<int64_t>(size));
  }
  void remove(size_t size) {
    count.remove(1);
    bytes.remove(static_cast<int64_t>(size));
  }
  void reset_peak() {
    count.reset_peak();
    bytes.reset_peak();
  }
  void reset_accumulated() {
    count.reset_accumulated();
    bytes.reset_accumulated();
  }
};

// Blocks in use, counted by all threads without a lock. Their number and their lines of 64 bytes lie in one word: so a
// block costs one atomic addition, and no peak is missed.
class BlocksInUse {
 public:
  void add(size_t bytes) {
    const uint64_t now = word_.fetch_add(word_of(bytes), std::memory_order_relaxed) + word_of(bytes);
    raise(peak_count_, count_of(now));
    raise(peak_bytes_, bytes_of(now));
  }
  void remove(size_t bytes) { word_.fetch_sub(word_of(bytes), std::memory_order_relaxed); }

  int64_t count() const { return count_of(word_.load(std::memory_order_relaxed)); }
  int64_t bytes() const { return bytes_of(word_.load(std::memory_order_relaxed)); }
  int64_t peak_count() const { return peak_count_.load(std::memory_order_relaxed); }
  int64_t peak_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }
  void reset_peak() {
    peak_count_ = count();
    peak_bytes_ = bytes();
  }

 private:
  static constexpr int bits_of_count = 28;  // and 36 for lines: 4 TiB
  static constexpr size_t line = 64;

  static uint64_t word_of(size_t bytes) { return (uint64_t{bytes / line} << bits_of_count) + 1; }
  static int64_t count_of(uint64_t word) { return static_cast<int64_t>(word & ((uint64_t{1} << bits_of_count) - 1)); }
  static int64_t bytes_of(uint64_t word) { return static_cast<int64_t>((word >> bits_of_count) * line); }
  static void raise(std::atomic<int64_t>& peak, int64_t value) {
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }

  alignas(64) std::atomic<uint64_t> word_ = 0;
  std::atomic<int64_t> peak_count_ = 0, peak_bytes_ = 0;
};

}  // namespace ipex::runtime
