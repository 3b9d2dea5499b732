// What the programs of this folder share.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <random>

namespace ipex::runtime::test {

inline std::mt19937 generator(7);

inline int random_integer(int lowest, int highest) {
  return std::uniform_int_distribution<int>(lowest, highest)(generator);
}

// Linux gives a process the tiles of AMX if asked.
inline bool may_use_tiles() {
  constexpr long ask_for_tiles = 0x1023, of_data = 18;
  return syscall(SYS_arch_prctl, ask_for_tiles, of_data) == 0;
}

// As test_rows_product.py reads it. Returns the status of the program.
inline int report(int cases, int wrong) {
  std::printf("%d cases, %d wrong elements\n", cases, wrong);
  return wrong != 0;
}

}  // namespace ipex::runtime::test
