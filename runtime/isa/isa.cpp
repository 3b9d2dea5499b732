// The choice of this process: made at the first use, and kept.
#include "isa/isa.h"

#include <c10/util/Exception.h>
#include <ipex/isa_choice.h>

#include <cstdlib>
#include <mutex>

#include "onednn/dnnl.h"
#include "threads/fork_safe_mutex.h"

namespace ipex::isa {
namespace {

struct State {
  runtime::ForkSafeMutex mutex;
  std::optional<Level> limit;
  std::optional<Choice> used;
  bool onednn_is_used = false;
};

State& state() {
  static State state;
  return state;
}

const std::vector<std::string>& features() {
  static const std::vector<std::string> features = cpu_features();
  return features;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// The functions below hold the lock.

Choice choice(const State& s) {
  if (s.used) return *s.used;
  std::string onednn = environment("ONEDNN_MAX_CPU_ISA");
  if (onednn.empty()) onednn = environment("DNNL_MAX_CPU_ISA");  // oneDNN reads its old name as well
  return choose({features(), environment("ATEN_CPU_CAPABILITY"), onednn, s.limit});
}

const Choice& use(State& s) {
  if (s.used) return *s.used;
  const Choice made = choice(s);
  if (!made.onednn_limit.empty()) {
    const auto limit = static_cast<dnnl::cpu_isa>(onednn_value(made.onednn_limit));
    // Fails only where oneDNN is shared with another library that has used it.
    TORCH_CHECK(dnnl::set_max_cpu_isa(limit) == dnnl::status::success,
                "ipex: expected a oneDNN that can be limited to ", made.onednn_limit,
                ", got one that has run already. Set ONEDNN_MAX_CPU_ISA=", made.onednn_limit, " instead.");
  }
  return s.used.emplace(made);
}

}  // namespace

Level level_in_use() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return use(s).level;
}

bool is_in_use(Level level) { return level <= level_in_use() && has_level(features(), level); }

void prepare_onednn() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  use(s);
  s.onednn_is_used = true;
}

Level current() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return choice(s).level;
}

Level highest_cpu() { return highest_level(features()); }

std::string onednn() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.onednn_is_used) return onednn_name(static_cast<int>(dnnl::get_effective_cpu_isa()));
  return choice(s).onednn;
}

bool has_fast_avx512_bf16() {
  static const bool is_fast = multiplies_pairs_fast(features(), environment("IPEX_FAST_AVX512_BF16"));
  return is_fast && has(Level::AVX512_BF16);
}

bool has(Level level) { return level <= current() && has_level(features(), level); }

void limit(Level level) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  TORCH_CHECK(!s.used,
              "ipex.isa.limit: expected a call before any model is packed or run, got one after kernels ran at '",
              name(s.used->level), "'. Call it at the start of the program, or set ATEN_CPU_CAPABILITY=", name(level),
              " for it.");
  check_reachable("ipex.isa.limit", level, highest_level(features()));
  s.limit = level;
}

}  // namespace ipex::isa
