// Which instructions are used: by ipex's own kernels, and by the oneDNN inside it.
//
// Nothing is read or decided when the library is loaded. The first model that is packed or run decides, once for the
// process, from the CPU, the operating system, the environment and `limit`. Queries tell what is or would be used and
// change nothing. They throw c10::Error where the first use would: see `current`.
#pragma once

#include <ipex/export.h>

#include <string>
#include <vector>

namespace ipex::isa {

// In rising order. A CPU need not have all that is below its own level: some with AVX512_VNNI lack AVX2_VNNI, and some
// with AVX512_FP16 lack AMX.
enum class Level { DEFAULT, AVX2, AVX2_VNNI, AVX512, AVX512_VNNI, AVX512_BF16, AMX, AVX512_FP16, AMX_FP16 };

// "default", "avx2", ..: the words of the environment variable ATEN_CPU_CAPABILITY.
IPEX_API const char* name(Level level);
// The level of this name. Throws for other words.
IPEX_API Level level_of(const std::string& name);

// The highest level that the CPU has and no cap forbids. Throws where ATEN_CPU_CAPABILITY is unknown or above what the
// CPU has, and where the CPU lacks AVX2.
IPEX_API Level current();
// The highest level of the CPU, under this operating system, and of ipex's own kernels.
IPEX_API Level highest_cpu();
IPEX_API Level highest_binary();
// Families of ipex's own kernels for the instructions of one level alone, beside the kernels above: those that the CPU has
// and no cap forbids. Throws where `current` does.
IPEX_API std::vector<Level> optional_families();
// What oneDNN uses, as it writes that in ONEDNN_MAX_CPU_ISA. Foretold until oneDNN has run: asking it would fix it, and
// request the use of AMX for the process.
IPEX_API std::string onednn();

// Whether the CPU has the instructions of this level, and no cap forbids them.
IPEX_API bool has(Level level);
inline bool has_avx2() { return has(Level::AVX2); }
inline bool has_avx2_vnni() { return has(Level::AVX2_VNNI); }
inline bool has_avx512() { return has(Level::AVX512); }
inline bool has_avx512_vnni() { return has(Level::AVX512_VNNI); }
// Whether layers compute in 8 bits: with vectors of AVX-512 that lack the instructions sums saturate, whatever AVX2 has.
inline bool has_int8() { return has(has_avx512() ? Level::AVX512_VNNI : Level::AVX2_VNNI); }
inline bool has_avx512_bf16() { return has(Level::AVX512_BF16); }
// Whether the CPU multiplies pairs of bfloat16 numbers by AVX512_BF16 as often a cycle as floats, so that twice as many
// are multiplied. Intel's since Sapphire Rapids do so once in two cycles, half as many as floats: they have AMX for it,
// which virtual machines may hide. The environment variable IPEX_FAST_AVX512_BF16, 0 or 1, decides instead, for tests.
IPEX_API bool has_fast_avx512_bf16();
inline bool has_avx512_fp16() { return has(Level::AVX512_FP16); }
inline bool has_amx() { return has(Level::AMX); }
inline bool has_amx_fp16() { return has(Level::AMX_FP16); }

// Uses nothing above this level. To be called before a model is packed or run; later, and for a level above the CPU's,
// it throws. The lower of this and ATEN_CPU_CAPABILITY holds.
IPEX_API void limit(Level level);

}  // namespace ipex::isa
