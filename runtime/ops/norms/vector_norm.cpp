// The Euclidean norm over dimensions that have others within, as over an image that is channels-last.
//
//   ipex::vector_norm(x, dim, keepdim) -> Tensor    as aten::linalg_vector_norm, of order 2
//
// The kernel takes float32 without gradients, dense in any order of dimensions, of which those that are summed lie next to one
// another. All else is left to aten, rows too; a profiler shows it, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "threads/grain.h"

namespace ipex::runtime {
namespace {

// A dense tensor as a table of three dimensions, of which the middle one is summed.
struct SummedTable {
  int64_t outer = 1, summed = 1, inner = 1;
};

// None where the kept dimensions are in another order than those of a contiguous result, or lie between those that are
// summed.
std::optional<SummedTable> table_of(const at::Tensor& x, at::IntArrayRef dim) {
  const auto is_summed = at::dim_list_to_bitset(dim, static_cast<size_t>(x.dim()));
  at::DimVector order;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (x.size(d) != 1) order.push_back(d);
  }
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return x.stride(a) > x.stride(b); });
  SummedTable table;
  int64_t last_kept = -1;
  bool was_summed = false, is_within = false;
  for (const int64_t d : order) {
    if (is_summed[static_cast<size_t>(d)]) {
      if (is_within) return std::nullopt;
      table.summed *= x.size(d);
      was_summed = true;
      continue;
    }
    if (d < last_kept) return std::nullopt;
    last_kept = d;
    is_within = was_summed;
    (was_summed ? table.inner : table.outer) *= x.size(d);
  }
  return table;
}

const char* reason_for_aten(const at::Tensor& x, at::IntArrayRef dim) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (!is_plain_cpu_float(x)) return "its input is not a float32 CPU tensor";
  if (wants_gradient(x)) return "its input requires a gradient";
  if (x.numel() == 0 || x.dim() == 0 || dim.empty()) return "it does not sum over dimensions";
  if (!x.is_non_overlapping_and_dense()) return "its input is not dense";
  return nullptr;
}

at::Tensor vector_norm(const at::Tensor& x, at::IntArrayRef dim, bool keepdim) {
  const char* reason = reason_for_aten(x, dim);
  SummedTable table;
  if (!reason) {
    const auto found = table_of(x, dim);
    table = found.value_or(SummedTable());
    reason = !found ? "kept dimensions lie between" : table.inner == 1 ? "it is of rows" : nullptr;
  }
  if (reason) {
    RECORD_FUNCTION(c10::str("ipex::vector_norm in aten: ", reason), {});
    return at::linalg_vector_norm(x, 2, dim, keepdim);
  }
  const auto is_summed = at::dim_list_to_bitset(dim, static_cast<size_t>(x.dim()));
  at::DimVector sizes;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (!is_summed[static_cast<size_t>(d)]) {
      sizes.push_back(x.size(d));
    } else if (keepdim) {
      sizes.push_back(1);
    }
  }
  const at::Tensor y = empty_result(sizes, x.options());
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  constexpr int64_t elements_worth_waking = 32768, columns_of_a_block = 64;
  const int64_t blocks = at::divup(table.inner, columns_of_a_block), pieces = table.outer * blocks;
  at::parallel_for(0, pieces, grain_of(pieces, x.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i / blocks, first = i % blocks * columns_of_a_block;
      kernels().norms.norms_of_columns(from + at * table.summed * table.inner + first, table.summed, table.inner,
                                       std::min(columns_of_a_block, table.inner - first),
                                       to + at * table.inner + first);
    }
  });
  return y;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) { m.def("vector_norm(Tensor x, int[] dim, bool keepdim) -> Tensor", vector_norm); }

}  // namespace
}  // namespace ipex::runtime
