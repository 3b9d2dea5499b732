// Rows of a packed weight, as a table of embeddings: each index gives a row of floats.
#pragma once

#include <ATen/core/Tensor.h>

#include "memory/result_memory.h"
#include "threads/parallel.h"

namespace ipex::runtime {

// Of integer indices on the CPU. `put(row, to)` writes the numbers of a row, or throws where there is none of that index.
template <typename Put>
at::Tensor look_up_rows(const at::Tensor& indices, int64_t width, Put&& put) {
  const at::Tensor rows = indices.to(at::kLong).contiguous();
  at::DimVector sizes(indices.sizes());
  sizes.push_back(width);
  at::Tensor result = empty_result(sizes, at::kFloat);
  const auto* row = rows.const_data_ptr<int64_t>();
  auto* to = result.mutable_data_ptr<float>();
  constexpr int64_t elements_worth_a_thread = 4096;  // each lies in a line of its own
  parallel_for(rows.numel(), elements_worth_a_thread / width + 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) put(row[i], to + i * width);
  });
  return result;
}

}  // namespace ipex::runtime
