// How the instructions are chosen, for any CPU and environment: for tests, and for seeing what would happen elsewhere.
#pragma once

#include <ipex/export.h>
#include <ipex/isa.h>

#include <optional>
#include <string>
#include <vector>

namespace ipex::isa {

struct Circumstances {
  // Those that this library asks about, by their names in Linux's /proc/cpuinfo, and slow_avx512_bf16.
  std::vector<std::string> features;
  // The environment variables, empty where they are not set.
  std::string aten_cpu_capability, onednn_max_cpu_isa;
  std::optional<Level> limit;
};

struct Choice {
  Level level;
  std::string onednn;        // what oneDNN will use
  std::string onednn_limit;  // what it has to be told for that, or nothing
};

// Of the CPU at hand: those whose registers the operating system saves.
IPEX_API std::vector<std::string> cpu_features();

// The highest level of a CPU with these features.
IPEX_API Level highest_level(const std::vector<std::string>& features);

// Whether the features are those of the level.
IPEX_API bool has_level(const std::vector<std::string>& features, Level level);

// See has_fast_avx512_bf16. `asked` is the environment variable, empty where it is not set.
IPEX_API bool multiplies_pairs_fast(const std::vector<std::string>& features, const std::string& asked);

// Throws where the first use would.
IPEX_API Choice choose(const Circumstances& circumstances);

}  // namespace ipex::isa
