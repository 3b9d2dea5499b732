// The ways to compute an op, as a list: the first that takes a call computes it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string>

#include "packed/call_conditions.h"

namespace ipex::runtime {

template <typename Call>
struct Algorithm {
  const char* name;
  // Null where it takes the call.
  const char* (*reason_against)(const Call& call);
  // Undefined where it finds at its work that it can't.
  at::Tensor (*run)(Call& call);
};

// The last one takes every call, and those that another one gives up. Profilers show which it is, and why those before are not.
template <typename Call, size_t count>
at::Tensor run_first(const char* op, const std::array<const Algorithm<Call>*, count>& list, Call& call) {
  std::array<const char*, count> reasons{};
  size_t i = 0;
  while (i + 1 < count && (reasons[i] = list[i]->reason_against(call))) ++i;
  const auto run = [&](size_t chosen) {
    const ProfilerNote note([&] {
      std::string text = c10::str(op, " by ", list[chosen]->name);
      for (size_t j = 0; j < chosen; ++j) {
        if (reasons[j]) text += c10::str("; not ", list[j]->name, ": ", reasons[j]);
      }
      return text;
    });
    return list[chosen]->run(call);
  };
  at::Tensor result = run(i);
  if (result.defined() || i + 1 == count) return result;
  reasons[i] = "it gave up";
  return run(count - 1);
}

}  // namespace ipex::runtime
