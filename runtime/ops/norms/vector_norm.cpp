// The Euclidean norm over some dimensions: of rows, as in F.normalize, or with others within, as over an image that is
// channels-last.
//
//   ipex::vector_norm(x, dim, keepdim) -> Tensor    as aten::linalg_vector_norm, of order 2
//
// The kernels take float32 without gradients, in which the summed dimensions are as one, and they or the last of the others
// lie innermost. All else is left to aten; a profiler shows it, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "threads/grain.h"

namespace ipex::runtime {
namespace {

// A tensor as it is read: rows of the summed dimension, one for each place of the kept ones; or, where a kept dimension lies
// innermost, columns of it.
struct SummedTable {
  int64_t summed = 1, summed_stride = 1;
  bool is_of_rows = false;
  // The last kept dimension, of which one call of a kernel takes some; and the others, in the order of the result.
  int64_t kept = 1, kept_stride = 1;
  at::DimVector outer, outer_strides;
};

// None where there is nothing to sum, the summed dimensions are not evenly spaced, or neither lies innermost.
std::optional<SummedTable> table_of(const at::Tensor& x, at::IntArrayRef dim) {
  const auto is_summed = at::dim_list_to_bitset(dim, static_cast<size_t>(x.dim()));
  at::DimVector summed;
  SummedTable table;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (x.size(d) == 1) continue;
    if (is_summed[static_cast<size_t>(d)]) {
      summed.push_back(d);
    } else if (!table.outer.empty() && table.outer_strides.back() == x.stride(d) * x.size(d)) {
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

const char* reason_for_aten(const at::Tensor& x, at::IntArrayRef dim) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (!is_plain_cpu_float(x)) return "its input is not a float32 CPU tensor";
  if (wants_gradient(x)) return "its input requires a gradient";
  if (x.numel() == 0 || x.dim() == 0 || dim.empty()) return "it does not sum over dimensions";
  return nullptr;
}

at::Tensor vector_norm(const at::Tensor& x, at::IntArrayRef dim, bool keepdim) {
  const char* reason = reason_for_aten(x, dim);
  std::optional<SummedTable> found;
  if (!reason && !(found = table_of(x, dim))) reason = "no dimension that it could take in vectors lies innermost";
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
  const SummedTable& table = *found;
  const NormKernels& norms = kernels().norms;
  constexpr int64_t elements_worth_waking = 32768, kept_at_once = 64;
  const int64_t blocks = at::divup(table.kept, kept_at_once), pieces = y.numel() / table.kept * blocks;
  at::parallel_for(0, pieces, grain_of(pieces, x.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kept_at_once, count = std::min(kept_at_once, table.kept - first);
      const float* some = from + offset_of(table, i / blocks) + first * table.kept_stride;
      float* result = to + i / blocks * table.kept + first;
      if (table.is_of_rows) {
        norms.norms_of_rows(some, count, table.kept_stride, table.summed, result);
      } else {
        norms.norms_of_columns(some, table.summed, table.summed_stride, count, result);
      }
    }
  });
  return y;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) { m.def("vector_norm(Tensor x, int[] dim, bool keepdim) -> Tensor", vector_norm); }

}  // namespace
}  // namespace ipex::runtime
