#include "ops/norms/reduction.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <optional>

#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

// A tensor as it is read: rows of the summed dimension, one for each place of the kept ones; or, where a kept dimension lies
// innermost, columns of it.
struct SummedTable {
  int64_t summed = 1, summed_stride = 1;
  bool is_of_rows = false;
  at::DimVector kept_dimensions;  // the outermost first
  // The innermost of them, of which one call of a kernel takes some; and the others, as few as they can be.
  int64_t kept = 1, kept_stride = 1;
  at::DimVector outer, outer_strides;
};

// None where there is nothing to sum, the summed dimensions are not evenly spaced, or neither lies innermost.
std::optional<SummedTable> table_of(const at::Tensor& x, const IsSummed& is_summed) {
  SummedTable table;
  at::DimVector summed, &kept = table.kept_dimensions;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (x.size(d) != 1) (is_summed[static_cast<size_t>(d)] ? summed : kept).push_back(d);
  }
  // What is repeated lies nowhere, and stays out of the way.
  std::stable_sort(kept.begin(), kept.end(), [&](int64_t a, int64_t b) {
    return x.stride(b) != 0 && (x.stride(a) == 0 || x.stride(a) > x.stride(b));
  });
  for (const int64_t d : kept) {
    if (!table.outer.empty() && table.outer_strides.back() == x.stride(d) * x.size(d)) {
      table.outer.back() *= x.size(d);
      table.outer_strides.back() = x.stride(d);
    } else {
      table.outer.push_back(x.size(d));
      table.outer_strides.push_back(x.stride(d));
    }
  }
  if (summed.empty()) return std::nullopt;
  std::sort(summed.begin(), summed.end(), [&](int64_t a, int64_t b) { return x.stride(a) > x.stride(b); });
  for (size_t i = 0; i < summed.size(); ++i) {
    const int64_t size = x.size(summed[i]), stride = x.stride(summed[i]);
    if (i > 0 && table.summed_stride != stride * size) return std::nullopt;
    table.summed *= size;
    table.summed_stride = stride;
  }
  if (!table.outer.empty()) {
    table.kept = table.outer.back();
    table.kept_stride = table.outer_strides.back();
    table.outer.pop_back();
    table.outer_strides.pop_back();
  }
  table.is_of_rows = table.summed_stride == 1;
  return table.is_of_rows || table.kept_stride == 1 ? std::optional(table) : std::nullopt;
}

// Where the kept dimensions but the last begin, for the given one of them.
int64_t offset_of(const SummedTable& table, int64_t number) {
  int64_t offset = 0;
  for (size_t d = table.outer.size(); d-- > 0; number /= table.outer[d]) {
    offset += number % table.outer[d] * table.outer_strides[d];
  }
  return offset;
}

const char* reason_against_sums(const at::Tensor& x) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (!is_plain_cpu_float(x)) return "its input is not a float32 CPU tensor";
  if (wants_gradient(x)) return "its input requires a gradient";
  return x.numel() == 0 || x.dim() == 0 ? "it does not sum over dimensions" : nullptr;
}

}  // namespace

at::Tensor in_order_of_dimensions(const at::Tensor& sums, at::IntArrayRef sizes, at::IntArrayRef kept,
                                  const IsSummed& is_summed, bool keepdim) {
  at::DimVector strides_of_all(sizes.size(), 1);
  int64_t count = 1;
  for (size_t i = kept.size(); i-- > 0; count *= sizes[static_cast<size_t>(kept[i])]) {
    strides_of_all[static_cast<size_t>(kept[i])] = count;
  }
  at::DimVector own_sizes, strides;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (is_summed[i] && !keepdim) continue;
    own_sizes.push_back(is_summed[i] ? 1 : sizes[i]);
    strides.push_back(strides_of_all[i]);
  }
  if (std::is_sorted(kept.begin(), kept.end())) return sums.view(own_sizes);
  return contiguous_result(sums.as_strided(own_sizes, strides));
}

at::Tensor reduced(const at::Tensor& x, at::IntArrayRef dim, bool keepdim, const SumKernels& kernels,
                   const char*& reason) {
  if ((reason = reason_against_sums(x))) return {};
  const IsSummed is_summed = at::dim_list_to_bitset(dim, static_cast<size_t>(x.dim()));
  const std::optional<SummedTable> found = table_of(x, is_summed);
  if (!found) {
    reason = "no dimension that it could take in vectors lies innermost";
    return {};
  }
  const SummedTable& table = *found;
  const int64_t count = table.kept * c10::multiply_integers(table.outer);
  const at::Tensor y = empty_result({count}, x.options());
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  constexpr int64_t elements_worth_waking = 32768, kept_at_once = 64;
  const int64_t blocks = at::divup(table.kept, kept_at_once), pieces = count / table.kept * blocks;
  parallel_for(pieces, grain_of(pieces, x.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kept_at_once, there = std::min(kept_at_once, table.kept - first);
      const float* some = from + offset_of(table, i / blocks) + first * table.kept_stride;
      float* result = to + i / blocks * table.kept + first;
      if (table.is_of_rows) {
        kernels.of_rows(some, there, table.kept_stride, table.summed, result);
      } else {
        kernels.of_columns(some, table.summed, table.summed_stride, there, result);
      }
    }
  });
  return in_order_of_dimensions(y, x.sizes(), table.kept_dimensions, is_summed, keepdim);
}

}  // namespace ipex::runtime
