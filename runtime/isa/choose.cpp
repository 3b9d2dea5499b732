// From what the CPU has and what is forbidden to what is used. Nothing here asks or changes anything.
//
// ATEN_CPU_CAPABILITY and `limit` cap the level, and oneDNN with it. ONEDNN_MAX_CPU_ISA, where it is set, decides for
// oneDNN alone, as it does for torch's.
#include <c10/util/Exception.h>
#include <ipex/isa_choice.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "isa/isa.h"
#include "onednn/dnnl.h"

namespace ipex::isa {
namespace {

using Features = std::vector<std::string>;

struct LevelRow {
  const char* name;
  Features needs;      // beside those of `above`
  Level above;         // itself where there is nothing
  const char* onednn;  // the cap for oneDNN that lets it use this level, and nothing higher as far as it knows of that
};

// In the order of `Level`. oneDNN has none with AMX and without AVX512-FP16.
const LevelRow levels[] = {
    {"default", {}, Level::DEFAULT, "sse41"},
    {"avx2", {"avx", "avx2", "fma"}, Level::DEFAULT, "avx2"},
    {"avx2_vnni", {"avx_vnni"}, Level::AVX2, "avx2_vnni"},
    {"avx512", {"avx512f", "avx512bw", "avx512vl", "avx512dq"}, Level::AVX2, "avx512_core"},
    {"avx512_vnni", {"avx512_vnni"}, Level::AVX512, "avx512_core_vnni"},
    {"avx512_bf16", {"avx512_bf16"}, Level::AVX512_VNNI, "avx512_core_bf16"},
    {"amx", {"amx_tile", "amx_int8", "amx_bf16"}, Level::AVX512_BF16, "avx512_core_amx"},
    {"avx512_fp16", {"avx512_fp16"}, Level::AVX512_BF16, "avx512_core_amx"},
    {"amx_fp16", {"amx_tile", "amx_int8", "amx_bf16", "amx_fp16"}, Level::AVX512_FP16, "avx512_core_amx_fp16"},
};

const LevelRow& row(Level level) { return levels[static_cast<size_t>(level)]; }

struct OnednnRow {
  const char* name;
  dnnl_cpu_isa_t bits;  // those of a level that it contains are among its own
  Level level;          // what it needs, and
  Features needs;
};

// From the highest down.
const OnednnRow onednn_levels[] = {
    {"avx512_core_amx_fp16", dnnl_cpu_isa_avx512_core_amx_fp16, Level::AMX_FP16, {"avx_vnni"}},
    {"avx512_core_amx", dnnl_cpu_isa_avx512_core_amx, Level::AMX, {"avx512_fp16", "avx_vnni"}},
    {"avx512_core_fp16", dnnl_cpu_isa_avx512_core_fp16, Level::AVX512_FP16, {"avx_vnni"}},
    {"avx512_core_bf16", dnnl_cpu_isa_avx512_core_bf16, Level::AVX512_BF16, {}},
    {"avx512_core_vnni", dnnl_cpu_isa_avx512_core_vnni, Level::AVX512_VNNI, {}},
    {"avx512_core", dnnl_cpu_isa_avx512_core, Level::AVX512, {}},
    {"avx2_vnni_2", dnnl_cpu_isa_avx2_vnni_2, Level::AVX2_VNNI, {"avx_vnni_int8", "avx_ne_convert"}},
    {"avx2_vnni", dnnl_cpu_isa_avx2_vnni, Level::AVX2_VNNI, {}},
    {"avx2", dnnl_cpu_isa_avx2, Level::AVX2, {}},
    {"avx", dnnl_cpu_isa_avx, Level::DEFAULT, {"avx"}},
    {"sse41", dnnl_cpu_isa_sse41, Level::DEFAULT, {"sse4_1"}},
};

// Other names that oneDNN reads.
const std::map<std::string, std::string> onednn_aliases = {{"avx10_1_512", "avx512_core_fp16"},
                                                           {"avx10_1_512_amx", "avx512_core_amx"},
                                                           {"avx10_1_512_amx_fp16", "avx512_core_amx_fp16"}};

bool are_among(const Features& wanted, const Features& features) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
    return std::find(features.begin(), features.end(), name) != features.end();
  });
}

std::string in_lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

Level highest_up_to(Level cap, const Features& features) {
  int level = static_cast<int>(cap);
  while (!has_level(features, static_cast<Level>(level))) --level;
  return static_cast<Level>(level);
}

// As oneDNN has it: a word that it does not know caps nothing.
std::string highest_of_onednn(const std::string& cap, const Features& features) {
  const auto alias = onednn_aliases.find(cap);
  const std::string& name = alias == onednn_aliases.end() ? cap : alias->second;
  const auto* const row = std::find_if(std::begin(onednn_levels), std::end(onednn_levels),
                                       [&](const OnednnRow& known) { return known.name == name; });
  const int allowed = row == std::end(onednn_levels) ? ~0 : static_cast<int>(row->bits);
  for (const OnednnRow& candidate : onednn_levels) {
    const bool is_allowed = (candidate.bits & allowed) == candidate.bits;
    if (is_allowed && has_level(features, candidate.level) && are_among(candidate.needs, features)) {
      return candidate.name;
    }
  }
  return "none";
}

std::string all_names() {
  std::string names;
  for (const LevelRow& row : levels) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

Level level_named(const char* where, const std::string& name) {
  const auto* const found = std::find_if(std::begin(levels), std::end(levels),
                                         [&](const LevelRow& row) { return row.name == in_lower_case(name); });
  TORCH_CHECK(found != std::end(levels), where, ": expected one of ", all_names(), ", got '", name, "'.");
  return static_cast<Level>(found - levels);
}

}  // namespace

const char* name(Level level) { return row(level).name; }

Level level_of(const std::string& name) { return level_named("ipex.isa", name); }

bool has_level(const Features& features, Level level) {
  return are_among(row(level).needs, features) && (level == Level::DEFAULT || has_level(features, row(level).above));
}

Level highest_level(const Features& features) { return highest_up_to(Level::AMX_FP16, features); }

bool multiplies_pairs_fast(const Features& features, const std::string& asked) {
  TORCH_CHECK(asked.empty() || asked == "0" || asked == "1", "IPEX_FAST_AVX512_BF16: expected 0 or 1, got '", asked,
              "'. Correct it in the environment, or remove it.");
  if (!has_level(features, Level::AVX512_BF16)) return false;
  return asked.empty() ? !are_among({"slow_avx512_bf16"}, features) : asked == "1";
}

void check_reachable(const char* where, Level level, Level highest) {
  TORCH_CHECK(level <= highest, where, ": expected a level that this CPU has, at most '", name(highest), "', got '",
              name(level), "'. Lower it, or take it away: without it the best of the CPU is used.");
}

Choice choose(const Circumstances& circumstances) {
  const auto& [features, aten_cpu_capability, onednn_max_cpu_isa, limit] = circumstances;
  const Level highest = highest_level(features);
  std::optional<Level> cap = limit;
  if (!aten_cpu_capability.empty()) {
    const Level asked = level_named("ATEN_CPU_CAPABILITY", aten_cpu_capability);
    check_reachable("ATEN_CPU_CAPABILITY", asked, highest);
    cap = std::min(asked, limit.value_or(asked));
  }
  TORCH_CHECK(highest >= Level::AVX2 || cap == Level::DEFAULT,
              "ipex: expected a CPU with AVX2 and FMA, got one without. Run the model as it was before "
              "ipex.jit_optimize or, to accept slow kernels, set ATEN_CPU_CAPABILITY=default.");
  const bool onednn_decides = !cap || !onednn_max_cpu_isa.empty();
  const std::string onednn_limit = onednn_decides ? "" : row(*cap).onednn;
  return {highest_up_to(cap.value_or(highest), features),
          highest_of_onednn(onednn_decides ? in_lower_case(onednn_max_cpu_isa) : onednn_limit, features), onednn_limit};
}

int onednn_value(const std::string& name) {
  for (const OnednnRow& row : onednn_levels) {
    if (row.name == name) return row.bits;
  }
  return dnnl_cpu_isa_default;
}

std::string onednn_name(int value) {
  for (const OnednnRow& row : onednn_levels) {
    if (row.bits == value) return row.name;
  }
  return value == dnnl_cpu_isa_default ? "none" : "one that ipex has no name for";
}

}  // namespace ipex::isa
