#include "math_mode.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <string_view>

namespace ipex {
namespace {

// The modes that CPUs have.
constexpr FP32MathMode honoured[] = {FP32MathMode::FP32, FP32MathMode::BF32};

FP32MathMode from_environment() {
  const char* text = std::getenv("IPEX_FP32_MATH_MODE");
  if (!text) return FP32MathMode::FP32;
  for (const FP32MathMode mode : honoured) {
    if (std::string_view(text) == to_string(mode)) return mode;
  }
  TORCH_CHECK(false, "IPEX_FP32_MATH_MODE: expected FP32 or BF32, got '", text,
              "'. Correct it in the environment, or remove it.");
}

// Made at the first use. Where that throws, the next use tries again.
std::atomic<FP32MathMode>& process_mode() {
  static std::atomic<FP32MathMode> mode{from_environment()};
  return mode;
}

}  // namespace

bool set_fp32_math_mode(FP32MathMode mode) {
  if (std::find(std::begin(honoured), std::end(honoured), mode) == std::end(honoured)) return false;
  process_mode() = mode;
  return true;
}

FP32MathMode get_fp32_math_mode() { return process_mode(); }

const char* to_string(FP32MathMode mode) {
  switch (mode) {
    case FP32MathMode::FP32:
      return "FP32";
    case FP32MathMode::TF32:
      return "TF32";
    case FP32MathMode::BF32:
      return "BF32";
  }
  return "unknown";
}

namespace runtime {

PinnedMathMode pinned_math_mode(const char* where, std::optional<int64_t> number) {
  if (!number) return std::nullopt;
  for (const FP32MathMode mode : honoured) {
    if (*number == static_cast<int64_t>(mode)) return mode;
  }
  TORCH_CHECK(false, where, ": expected math mode 0 (FP32) or 2 (BF32), got ", *number,
              ". Optimise the model again with one of these.");
}

// Reads the process's only when it is needed: that may throw.
FP32MathMode math_mode_now(const PinnedMathMode& pinned) { return pinned ? *pinned : get_fp32_math_mode(); }

const char* describe(const PinnedMathMode& pinned) { return pinned ? to_string(*pinned) : "as the process"; }

}  // namespace runtime
}  // namespace ipex
