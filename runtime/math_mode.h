// The math mode of one context: its own where it has one, else that of the process at the time of a call.
#pragma once

#include <ipex/math_mode.h>

#include <cstdint>
#include <optional>

namespace ipex::runtime {

using PinnedMathMode = std::optional<FP32MathMode>;

// A mode as ops and saved models have it, a number or nothing. Throws, naming `where`, for one that no CPU has.
PinnedMathMode pinned_math_mode(const char* where, std::optional<int64_t> number);

// The mode of a call made now.
FP32MathMode math_mode_now(const PinnedMathMode& pinned);

// For people to read.
const char* describe(const PinnedMathMode& pinned);

}  // namespace ipex::runtime
