// IPEX_FOR_EACH_ISA before a function: it is compiled once for each of these instruction sets, and the loader takes the
// best one that the CPU has. For plain loops that the compiler turns into vectors by itself.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define IPEX_FOR_EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define IPEX_FOR_EACH_ISA
#endif
