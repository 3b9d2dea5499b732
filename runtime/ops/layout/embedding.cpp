// Rows of a table, in the order of indices.
//
//   ipex::look_up(weight, indices, padding_idx, scale_grad_by_freq, sparse) -> Tensor    as aten::embedding
//
// aten wakes its threads for any number of rows, which takes longer than to copy those of a sentence. What it raises an error
// for, and what has gaps or is to be differentiated, is its own to compute.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>

#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

bool has_rows(const at::Tensor& weight) {
  return weight.dim() == 2 && is_plain_cpu(weight) && !wants_gradient(weight) && weight.stride(1) == 1;
}

template <typename Index>
at::Tensor rows_of(const at::Tensor& weight, const at::Tensor& indices) {
  const Index *first = indices.const_data_ptr<Index>(), *last = first + indices.numel();
  const int64_t rows = weight.size(0);
  if (!std::all_of(first, last, [=](Index row) { return row >= 0 && row < rows; })) return {};
  at::DimVector sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  const at::Tensor result = empty_result(sizes, weight.options());
  const auto item = static_cast<int64_t>(weight.element_size());
  const int64_t bytes = weight.size(1) * item, stride = weight.stride(0) * item;
  const auto* from = static_cast<const char*>(weight.const_data_ptr());
  auto* to = static_cast<char*>(result.mutable_data_ptr());
  constexpr int64_t bytes_worth_waking = 128 * 1024;
  parallel_for(last - first, grain_of(last - first, (last - first) * bytes, bytes_worth_waking),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   std::memcpy(to + i * bytes, from + int64_t{first[i]} * stride, static_cast<size_t>(bytes));
                 }
               });
  return result;
}

at::Tensor look_up(const at::Tensor& weight, const at::Tensor& indices, int64_t padding_idx, bool scale_grad_by_freq,
                   bool sparse) {
  at::Tensor result;
  if (has_rows(weight) && is_plain_cpu(indices) && indices.is_contiguous()) {
    if (indices.scalar_type() == at::kLong) result = rows_of<int64_t>(weight, indices);
    if (indices.scalar_type() == at::kInt) result = rows_of<int32_t>(weight, indices);
  }
  return result.defined() ? result : at::embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "look_up(Tensor weight, Tensor indices, int padding_idx, bool scale_grad_by_freq, bool sparse) -> Tensor",
         look_up);
}

}  // namespace
}  // namespace ipex::runtime
