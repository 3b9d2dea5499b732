// What the CPU has, and the operating system allows: a register that is not saved when threads are switched must not be
// used. Asks only. The use of AMX has to be requested from Linux, for the whole process, which oneDNN does when it first
// needs it.
#include <cpuid.h>
#include <ipex/isa_choice.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "isa/isa.h"

namespace ipex::isa {
namespace {

// Bits of XCR0: registers that the operating system saves.
constexpr uint64_t xmm = 1 << 1, ymm = xmm | 1 << 2, zmm = ymm | 7 << 5, tiles = 3 << 17;

enum Register { eax, ebx, ecx, edx };

struct Feature {
  const char* name;
  unsigned leaf, subleaf;
  Register reg;
  int bit;
  uint64_t saved;
};

constexpr Feature known[] = {
    {"sse4_1", 1, 0, ecx, 19, 0},       {"fma", 1, 0, ecx, 12, ymm},          {"avx", 1, 0, ecx, 28, ymm},
    {"avx2", 7, 0, ebx, 5, ymm},        {"avx512f", 7, 0, ebx, 16, zmm},      {"avx512dq", 7, 0, ebx, 17, zmm},
    {"avx512bw", 7, 0, ebx, 30, zmm},   {"avx512vl", 7, 0, ebx, 31, zmm},     {"avx512_vnni", 7, 0, ecx, 11, zmm},
    {"amx_bf16", 7, 0, edx, 22, tiles}, {"avx512_fp16", 7, 0, edx, 23, zmm},  {"amx_tile", 7, 0, edx, 24, tiles},
    {"amx_int8", 7, 0, edx, 25, tiles}, {"avx_vnni", 7, 1, eax, 4, ymm},      {"avx512_bf16", 7, 1, eax, 5, zmm},
    {"amx_fp16", 7, 1, eax, 21, tiles}, {"avx_vnni_int8", 7, 1, edx, 4, ymm}, {"avx_ne_convert", 7, 1, edx, 5, ymm},
};

std::array<unsigned, 4> cpuid(unsigned leaf, unsigned subleaf) {
  std::array<unsigned, 4> r{};
  if (subleaf > 0 && subleaf > cpuid(leaf, 0)[eax]) return {};  // leaf 7 tells its last subleaf
  __get_cpuid_count(leaf, subleaf, &r[eax], &r[ebx], &r[ecx], &r[edx]);
  return r;
}

uint64_t saved_registers() {
  constexpr unsigned has_xgetbv = 1u << 27;
  if (!(cpuid(1, 0)[ecx] & has_xgetbv)) return 0;
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  uint64_t saved = uint64_t{high} << 32 | low;
#ifdef __linux__
  // Whether a process may request the tiles.
  constexpr int arch_get_xcomp_supp = 0x1021;
  uint64_t on_request = 0;
  if ((saved & tiles) == tiles &&
      (syscall(SYS_arch_prctl, arch_get_xcomp_supp, &on_request) != 0 || (on_request & tiles) != tiles)) {
    saved &= ~tiles;
  }
#endif
  return saved;
}

// Of Intel's, Cooper Lake alone was made to multiply bfloat16 numbers by AVX-512.
bool has_slow_pairs() {
  constexpr unsigned cooper_lake = 0x55;
  const auto [highest_leaf, b, c, d] = cpuid(0, 0);
  const bool is_intel = b == signature_INTEL_ebx && c == signature_INTEL_ecx && d == signature_INTEL_edx;
  const unsigned signature = cpuid(1, 0)[eax], model = (signature >> 4 & 0xf) | (signature >> 12 & 0xf0);
  return is_intel && model != cooper_lake;
}

}  // namespace

std::vector<std::string> cpu_features() {
  const uint64_t saved = saved_registers();
  std::vector<std::string> names;
  for (const Feature& feature : known) {
    const bool is_there = cpuid(feature.leaf, feature.subleaf)[feature.reg] >> feature.bit & 1;
    if (is_there && (saved & feature.saved) == feature.saved) names.emplace_back(feature.name);
  }
  const bool has_pairs = std::find(names.begin(), names.end(), "avx512_bf16") != names.end();
  if (has_pairs && has_slow_pairs()) names.emplace_back("slow_avx512_bf16");
  return names;
}

bool request_tiles() {
#ifdef __linux__
  constexpr int arch_req_xcomp_perm = 0x1023, number_of_tile_data = 18;
  return syscall(SYS_arch_prctl, arch_req_xcomp_perm, number_of_tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace ipex::isa
