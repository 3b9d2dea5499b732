// The ways to compute an op, as a list: the first that takes a call computes it.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <string>

#include "packed/call_conditions.h"

namespace ipex::runtime {

template <typename Call, typename Result = at::Tensor>
struct Algorithm {
  const char* name;
  // Null where it takes the call.
  const char* (*reason_against)(const Call& call);
  // Undefined, or false, where it finds at its work that it can't.
  Result (*run)(Call& call);
};

inline bool is_done(const at::Tensor& result) { return result.defined(); }
inline bool is_done(bool result) { return result; }

// What ends the list of an op with a primitive: it takes all, and leaves it to PackedOp.
template <typename Call>
constexpr Algorithm<Call> by_onednn{"oneDNN", [](const Call&) -> const char* { return nullptr; },
                                    [](Call&) { return at::Tensor(); }};

// The last one gets what another one gives up, and may do so too. Profilers show which it is, and why those before are not.
template <typename Call, typename Result, size_t count>
Result run_first(const char* op, const std::array<const Algorithm<Call, Result>*, count>& list, Call& call) {
  std::array<const char*, count> reasons{};
  for (size_t i = 0; i < count; ++i) {
    if ((reasons[i] = list[i]->reason_against(call))) continue;
    const ProfilerNote note([&] {
      std::string text = c10::str(op, " by ", list[i]->name);
      for (size_t j = 0; j < i; ++j) text += reasons[j] ? c10::str("; not ", list[j]->name, ": ", reasons[j]) : "";
      return text;
    });
    if (Result result = list[i]->run(call); is_done(result)) return result;
    reasons[i] = "it gave up";
    i = std::max(i, count - 2);  // on to the last
  }
  return {};
}

}  // namespace ipex::runtime
