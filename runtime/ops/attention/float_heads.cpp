// Heads of floats as they lie: rows whose width is dense, or whose length is (kernels/turned_attention.h).
#include "ops/attention/heads_of_call.h"

namespace ipex::runtime {
namespace {

template <typename Kernels>
bool attend_floats(const HeadsOfCall& heads, const Kernels& kernel) {
  return heads.attend_all(kernel, [&](int64_t i) { return heads.with_places<float>(heads.head<AttentionHead>(i), i); });
}

}  // namespace

bool lie_turned(const AttentionHeads& attention) {
  const auto lies_turned = [](const HeadRows& x) { return x.stride(2) == 1 && x.stride(3) > 1 && x.size(3) > 1; };
  return attention.query.dtype == at::kFloat && !attention.rounds && !attention.affines && !attention.is_causal &&
         lies_turned(attention.query) && lies_turned(attention.key) && lies_turned(attention.value);
}

const AttentionAlgorithm turned_heads{
    "turned heads",
    [](const HeadsOfCall& heads) { return lie_turned(heads.attention()) ? nullptr : "its rows are dense"; },
    [](const HeadsOfCall& heads) { return attend_floats(heads, kernels().turned_attention); }};

const AttentionAlgorithm float_heads{
    "floats",
    [](const HeadsOfCall& heads) -> const char* {
      if (heads.attention().query.dtype != at::kFloat) return "its heads are of 16 bits";
      return heads.attention().row_scales ? "its keys are codes" : nullptr;
    },
    [](const HeadsOfCall& heads) { return attend_floats(heads, heads.float_kernels()); }};

}  // namespace ipex::runtime
