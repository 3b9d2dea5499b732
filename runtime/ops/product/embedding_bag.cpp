// embedding_bag without the results that only its gradient needs.
//
//   ipex::embedding_bag(weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx) -> Tensor
//
// Arguments are those of aten::embedding_bag, the result is its first one. aten also works out which bag each index
// belongs to, how many there are in each bag and, for max, where each maximum came from. For mean and max that costs
// more than the embeddings.
// Left to aten: sums of many rows, for which it has a kernel as good as ours, and what is unusual: other dtypes,
// gradients, tensors with gaps, and whatever aten raises an error for.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "threads/grain.h"

namespace ipex::runtime {
namespace {

// Whether every index is a row and every bag a range of indices, the last one up to the end.
template <typename Index>
bool are_valid(const Bags<Index>& bags, bool include_last_offset) {
  const Index* const last = bags.offsets + bags.offset_count - 1;
  bool valid = bags.offsets[0] == 0 && std::is_sorted(bags.offsets, last + 1);
  valid &= include_last_offset ? *last == bags.index_count : *last <= bags.index_count;
  const auto rows = static_cast<uint64_t>(bags.rows);
  for (int64_t i = 0; i < bags.index_count; ++i) valid &= static_cast<uint64_t>(int64_t{bags.indices[i]}) < rows;
  return valid;
}

// The result, or an undefined tensor when a value is one that aten shall judge.
template <typename Index>
at::Tensor compute(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets, int64_t mode,
                   const at::Tensor& scales, bool include_last_offset, int64_t padding) {
  const int64_t count = offsets.size(0) - (include_last_offset ? 1 : 0);
  if (count < 1) return {};
  Bags<Index> bags{weight.const_data_ptr<float>(),
                   weight.size(0),
                   weight.size(1),
                   indices.const_data_ptr<Index>(),
                   indices.size(0),
                   offsets.const_data_ptr<Index>(),
                   offsets.size(0),
                   scales.defined() ? scales.const_data_ptr<float>() : nullptr,
                   static_cast<Reduction>(mode),
                   padding,
                   nullptr};
  if (!are_valid(bags, include_last_offset)) return {};
  const at::Tensor result = empty_result({count, bags.width}, weight.options());
  bags.result = result.data_ptr<float>();
  const EmbeddingBagKernels& embedding_bag = kernels().embedding_bag;
  constexpr int64_t elements_worth_waking = 1 << 15;
  const int64_t elements_per_bag = std::max<int64_t>(1, bags.index_count * bags.width / count);
  at::parallel_for(0, count, grain_of(count, count * elements_per_bag, elements_worth_waking),
                   [&](int64_t first, int64_t last) {
                     if constexpr (std::is_same_v<Index, int32_t>) {
                       embedding_bag.reduce_int32(bags, first, last);
                     } else {
                       embedding_bag.reduce_int64(bags, first, last);
                     }
                   });
  return result;
}

bool is_dense_vector(const at::Tensor& tensor) {
  return tensor.dim() == 1 && tensor.is_contiguous() && tensor.device().is_cpu() && !tensor.is_neg();
}

// Where the sums outweigh the call, aten's are as fast as ours.
bool is_worth_it(const at::Tensor& indices, int64_t mode) {
  constexpr int64_t most_indices_of_a_sum = 64;
  return static_cast<Reduction>(mode) != Reduction::sum || indices.numel() <= most_indices_of_a_sum;
}

bool is_usual(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets, int64_t mode,
              const at::Tensor& scales, const std::optional<int64_t>& padding) {
  const bool scales_are_usual =
      !scales.defined() || (mode == static_cast<int64_t>(Reduction::sum) && is_plain_cpu_float(scales) &&
                            !wants_gradient(scales) && is_dense_vector(scales) && scales.size(0) == indices.numel());
  return is_plain_cpu_float(weight) && !wants_gradient(weight) && weight.dim() == 2 && weight.is_contiguous() &&
         is_dense_vector(indices) && is_dense_vector(offsets) && indices.scalar_type() == offsets.scalar_type() &&
         (indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt) && mode >= 0 && mode <= 2 &&
         scales_are_usual && padding.value_or(0) >= 0;
}

at::Tensor embedding_bag(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets, int64_t mode,
                         const std::optional<at::Tensor>& per_sample_weights, bool include_last_offset,
                         std::optional<int64_t> padding_idx) {
  const at::Tensor scales = per_sample_weights.value_or(at::Tensor());
  if (is_worth_it(indices, mode) && is_usual(weight, indices, offsets, mode, scales, padding_idx)) {
    const auto result = AT_DISPATCH_INDEX_TYPES(indices.scalar_type(), "ipex::embedding_bag", [&] {
      return compute<index_t>(weight, indices, offsets, mode, scales, include_last_offset, padding_idx.value_or(-1));
    });
    if (result.defined()) return result;
  }
  return std::get<0>(at::embedding_bag(weight, indices, offsets, /*scale_grad_by_freq=*/false, mode, /*sparse=*/false,
                                       per_sample_weights, include_last_offset, padding_idx));
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.def(
      "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, int mode, Tensor? per_sample_weights, "
      "bool include_last_offset, int? padding_idx) -> Tensor",
      embedding_bag);
}

}  // namespace
}  // namespace ipex::runtime
