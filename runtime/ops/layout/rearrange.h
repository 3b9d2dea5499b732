// Reshapes, permutations and the like in a row, as data: the names of the steps, and so many numbers for each as its count says.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace ipex::runtime {

// The steps and their numbers are explained in rearrange.cpp.
at::Tensor rearrange(const at::Tensor& x, const std::vector<std::string>& steps, at::IntArrayRef counts,
                     at::IntArrayRef numbers);

// Visits steps with their numbers until one gives false, which it returns.
template <typename Visit>
bool for_each_step(const std::vector<std::string>& steps, at::IntArrayRef counts, at::IntArrayRef numbers,
                   Visit&& visit) {
  size_t at = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto count = static_cast<size_t>(counts[i]);
    if (!visit(steps[i], numbers.slice(at, count))) return false;
    at += count;
  }
  return true;
}

}  // namespace ipex::runtime
