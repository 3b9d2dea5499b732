// What a mixture of experts does around its products (grouped_linear.cpp).
//
//   ipex::rows_by_expert(rows, chosen, experts) -> (Tensor rows, Tensor order, Tensor ends)
//   ipex::sum_of_experts(found, order, weights) -> Tensor
//
// `chosen` [tokens, top_k] are experts of each row, which lies in the first result once for each of them, all rows of an
// expert together. `order` says for each which place of `chosen` it stands for, and `ends`, int32, where the rows of each
// expert end. The sum is, for each token, that of what its experts found times their weights.
//
// In a step of one token the work is small: as the ten ops of aten that these are they take longer than the products.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

using RowsByExpert = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

bool is_dense(const at::Tensor& tensor, at::ScalarType dtype) {
  return is_plain_cpu(tensor) && tensor.scalar_type() == dtype && tensor.is_contiguous() && !wants_gradient(tensor);
}

at::Tensor rows_in_aten(const at::Tensor& rows, const at::Tensor& order, int64_t of_a_token) {
  return rows.index_select(0, order.div(of_a_token, "floor"));
}

RowsByExpert rows_by_expert(const at::Tensor& rows, const at::Tensor& chosen, int64_t experts) {
  TORCH_CHECK(rows.dim() == 2 && chosen.dim() == 2 && chosen.size(0) == rows.size(0) && chosen.size(1) > 0 &&
                  chosen.scalar_type() == at::kLong && experts > 0,
              "ipex::rows_by_expert: expected rows [tokens, width] and int64 experts [tokens, top_k], got ",
              rows.sizes(), " and ", chosen.scalar_type(), " ", chosen.sizes(),
              ". Flatten all dimensions but the last.");
  const int64_t of_a_token = chosen.size(1), count = chosen.numel();
  if (!is_dense(chosen, at::kLong)) {
    const at::Tensor flat = chosen.flatten(), order = flat.argsort(/*stable=*/true);
    return {rows_in_aten(rows, order, of_a_token), order, at::bincount(flat, {}, experts).cumsum(0).to(at::kInt)};
  }
  const auto* expert = chosen.const_data_ptr<int64_t>();
  std::vector<int64_t> next(static_cast<size_t>(experts));
  for (int64_t i = 0; i < count; ++i) {
    TORCH_CHECK_INDEX(expert[i] >= 0 && expert[i] < experts, "ipex::rows_by_expert: expected experts from 0 to ",
                      experts - 1, ", got ", expert[i], ". The mixture has no more.");
    ++next[static_cast<size_t>(expert[i])];
  }
  at::Tensor order = empty_result({count}, at::kLong), ends = empty_result({experts}, at::kInt);
  auto* own_ends = ends.mutable_data_ptr<int32_t>();
  int64_t end = 0;
  for (size_t i = 0; i < next.size(); ++i) {
    const int64_t own = next[i];
    next[i] = end;  // where the next row of the expert goes
    own_ends[i] = static_cast<int32_t>(end += own);
  }
  auto* own_order = order.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) own_order[next[static_cast<size_t>(expert[i])]++] = i;
  if (!is_plain_cpu(rows) || !rows.is_contiguous() || wants_gradient(rows)) {
    return {rows_in_aten(rows, order, of_a_token), order, ends};
  }
  at::Tensor result = empty_result({count, rows.size(1)}, rows.options());
  const auto* from = static_cast<const char*>(rows.const_data_ptr());
  auto* to = static_cast<char*>(result.mutable_data_ptr());
  const auto bytes = static_cast<int64_t>(rows.size(1) * rows.itemsize());
  constexpr int64_t bytes_worth_waking = 1 << 18;
  parallel_for(count, grain_of(count, count * bytes, bytes_worth_waking), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) std::copy_n(from + own_order[i] / of_a_token * bytes, bytes, to + i * bytes);
  });
  return {result, order, ends};
}

at::Tensor sum_in_aten(const at::Tensor& found, const at::Tensor& order, const at::Tensor& weights) {
  const at::Tensor weighted = found * weights.flatten().index_select(0, order).unsqueeze(1).to(found.scalar_type());
  const at::Tensor by_token = at::zeros_like(weighted).index_copy(0, order, weighted);
  return by_token.view({weights.size(0), weights.size(1), found.size(1)}).sum(1);
}

at::Tensor sum_of_experts(const at::Tensor& found, const at::Tensor& order, const at::Tensor& weights) {
  TORCH_CHECK(found.dim() == 2 && weights.dim() == 2 && order.dim() == 1 && order.scalar_type() == at::kLong &&
                  found.size(0) == weights.numel() && order.numel() == weights.numel(),
              "ipex::sum_of_experts: expected [rows, width] found, the int64 order of those rows, and weights [tokens, "
              "top_k], got ",
              found.sizes(), ", ", order.scalar_type(), " ", order.sizes(), " and ", weights.sizes(),
              ". Give what ipex::rows_by_expert made.");
  if (!is_dense(found, at::kFloat) || !is_dense(weights, at::kFloat) || !is_dense(order, at::kLong)) {
    return sum_in_aten(found, order, weights);
  }
  const int64_t tokens = weights.size(0), of_a_token = weights.size(1), width = found.size(1), count = order.numel();
  std::vector<int64_t> row_of(static_cast<size_t>(count), -1);
  const auto* place = order.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    const bool is_new = place[i] >= 0 && place[i] < count && row_of[static_cast<size_t>(place[i])] < 0;
    TORCH_CHECK(is_new, "ipex::sum_of_experts: expected each of ", count, " places once in the order, got ", place[i],
                " out of range, or twice. Give what ipex::rows_by_expert made.");
    row_of[static_cast<size_t>(place[i])] = i;
  }
  at::Tensor result = empty_result({tokens, width}, at::kFloat);
  const auto *numbers = found.const_data_ptr<float>(), *factors = weights.const_data_ptr<float>();
  auto* sums = result.mutable_data_ptr<float>();
  constexpr int64_t numbers_worth_waking = 1 << 16;
  parallel_for(tokens, grain_of(tokens, count * width, numbers_worth_waking), [&](int64_t first, int64_t last) {
    for (int64_t token = first; token < last; ++token) {
      float* const sum = sums + token * width;
      std::fill_n(sum, width, 0.f);
      for (int64_t i = token * of_a_token; i < (token + 1) * of_a_token; ++i) {
        const float* const row = numbers + row_of[static_cast<size_t>(i)] * width;
        for (int64_t k = 0; k < width; ++k) sum[k] += row[k] * factors[i];
      }
    }
  });
  return result;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "rows_by_expert(Tensor rows, Tensor chosen, int experts) -> (Tensor rows, Tensor order, Tensor ends)",
         rows_by_expert);
  define(m, "sum_of_experts(Tensor found, Tensor order, Tensor weights) -> Tensor", sum_of_experts);
}

}  // namespace
}  // namespace ipex::runtime
