// softmax, with a faster exponential than aten's.
//
//   ipex::softmax(x, dim, dtype) -> Tensor, and ipex::log_softmax
//
// The kernels take ordinary numbers, and -infinity beside them: float32, or 16 bits, which are computed with as floats. The result
// is contiguous, as in eager. What is not contiguous is copied into it, as where heads are mixed before, but for long rows of
// floats, which are read wherever they lie. Of a
// dimension that is not the last some columns are computed side by side. All else is left to aten; a profiler shows it, with
// the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "memory/scratch.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/float_rows.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

constexpr int64_t elements_worth_waking = 8192;

const char* reason_for_aten(const at::Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (!has_float_rows(x)) return "it is no CPU tensor of float32 or 16 bits";
  if (dtype.value_or(at::kFloat) != at::kFloat && *dtype != x.scalar_type()) return "its result has another dtype";
  if (wants_gradient(x)) return "it requires a gradient";
  if (x.numel() == 0 || dim < -x.dim() || dim >= x.dim()) return "it has no such dimension, or no elements";
  return nullptr;
}

// Whether rows of floats lie in one piece each, and are so long that each is worth a call.
bool has_long_rows(const at::Tensor& x) {
  constexpr int64_t long_row = 64;
  return x.scalar_type() == at::kFloat && x.stride(-1) == 1 && x.size(-1) >= long_row;
}

int64_t place_of_row(const at::Tensor& x, int64_t i) {
  int64_t place = 0;
  for (int64_t d = x.dim() - 2; d >= 0; i /= x.size(d--)) place += i % x.size(d) * x.stride(d);
  return place;
}

// Of a contiguous tensor, or one of long rows. Whether all rows are ordinary numbers; else the result is incomplete.
bool softmax_of_rows(const at::Tensor& x, const at::Tensor& y, bool of_logarithms) {
  const int64_t width = x.size(-1), rows = x.numel() / width;
  const bool is_float = x.scalar_type() == at::kFloat, is_contiguous = x.is_contiguous();
  const RowsToRead from(x, width);
  const RowsToWrite to(y, width);
  const SoftmaxKernels& all = kernels().softmax;
  const auto softmax_rows = of_logarithms ? all.log_softmax_rows : all.softmax_rows;
  std::atomic<bool> ordinary{true};
  const int64_t grain = grain_of(rows, x.numel(), elements_worth_waking);
  parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    if (!is_contiguous) {
      const auto* const first = x.const_data_ptr<float>();
      for (int64_t i = begin; i < end && ordinary; ++i) {
        if (!softmax_rows(first + place_of_row(x, i), 1, width, to.place(i, nullptr))) ordinary = false;
      }
      return;
    }
    if (is_float) {
      if (!softmax_rows(from.row(begin, nullptr), end - begin, width, to.place(begin, nullptr))) ordinary = false;
      return;
    }
    const at::Tensor memory = scratch(sizeof(float) * static_cast<size_t>(width));
    auto* room = static_cast<float*>(memory.data_ptr());
    for (int64_t i = begin; i < end && ordinary; ++i) {
      float* place = to.place(i, room);
      if (!softmax_rows(from.row(i, place), 1, width, place)) ordinary = false;
      to.write(i, place);
    }
  });
  return ordinary;
}

// The same of a dimension behind which there are others. A piece is some columns: the elements of one index behind it.
bool softmax_of_columns(const at::Tensor& x, int64_t dim, const at::Tensor& y, bool of_logarithms) {
  constexpr int64_t columns_of_a_piece = 64;
  const int64_t rows = x.size(dim), columns = c10::multiply_integers(x.sizes().slice(dim + 1));
  const int64_t images = x.numel() / (rows * columns);
  const int64_t pieces_of_an_image = at::divup(columns, columns_of_a_piece), pieces = images * pieces_of_an_image;
  const auto* from = x.const_data_ptr<float>();
  auto* to = y.mutable_data_ptr<float>();
  const SoftmaxKernels& all = kernels().softmax;
  const auto softmax_columns = of_logarithms ? all.log_softmax_columns : all.softmax_columns;
  std::atomic<bool> ordinary{true};
  const int64_t grain = grain_of(pieces, x.numel(), elements_worth_waking);
  parallel_for(pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && ordinary; ++i) {
      const int64_t first = i % pieces_of_an_image * columns_of_a_piece;
      const int64_t place = i / pieces_of_an_image * rows * columns + first;
      const int64_t count = std::min(columns_of_a_piece, columns - first);
      if (!softmax_columns(from + place, rows, columns, count, to + place)) ordinary = false;
    }
  });
  return ordinary;
}

at::Tensor softmax(const at::Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype, bool of_logarithms) {
  const char* reason = reason_for_aten(x, dim, dtype);
  if (!reason) {
    const int64_t positive = dim < 0 ? dim + x.dim() : dim;
    const bool is_last = positive == x.dim() - 1;
    const at::ScalarType result = dtype.value_or(x.scalar_type());
    at::Tensor dense = is_last && has_long_rows(x) ? x : contiguous_result(x);
    if (!is_last) dense = in_floats(dense);
    const bool is_copy = !dense.is_same(x);
    const at::Tensor y = is_copy && result == dense.scalar_type()
                             ? dense
                             : empty_result(x.sizes(), x.options().dtype(is_last ? result : at::kFloat));
    if (is_last ? softmax_of_rows(dense, y, of_logarithms) : softmax_of_columns(dense, positive, y, of_logarithms)) {
      return y.to(result);
    }
    reason = "a row is not finite";
  }
  const LeftToAten left(reason, of_logarithms ? "ipex::log_softmax" : "ipex::softmax");
  return of_logarithms ? at::log_softmax(x, dim, dtype) : at::softmax(x, dim, dtype);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "softmax(Tensor x, int dim, ScalarType? dtype) -> Tensor",
         [](const at::Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype) {
           return softmax(x, dim, dtype, /*of_logarithms=*/false);
         });
  define(m, "log_softmax(Tensor x, int dim, ScalarType? dtype) -> Tensor",
         [](const at::Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype) {
           return softmax(x, dim, dtype, /*of_logarithms=*/true);
         });
}

}  // namespace
}  // namespace ipex::runtime
