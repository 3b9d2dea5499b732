// softmax of the last dimension, with a faster exponential than aten's.
//
//   ipex::softmax(x, dim, dtype) -> Tensor
//
// The kernel takes rows of ordinary numbers, and -infinity beside them: float32, or 16 bits, which are computed with as
// floats. Rows that are no runs of memory, as where
// heads are mixed before, are copied into the result, which is contiguous in eager too. All else is left to aten; a profiler
// shows it, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "memory/scratch.h"
#include "packed/call_conditions.h"
#include "packed/float_rows.h"
#include "packed/memory_format.h"
#include "threads/grain.h"

namespace ipex::runtime {
namespace {

const char* reason_for_aten(const at::Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (!has_float_rows(x)) return "it is no CPU tensor of float32 or 16 bits";
  if (dtype.value_or(at::kFloat) != at::kFloat && *dtype != x.scalar_type()) return "its result has another dtype";
  if (wants_gradient(x)) return "it requires a gradient";
  if (x.dim() == 0 || x.numel() == 0 || (dim != -1 && dim != x.dim() - 1)) return "it is not of the last dimension";
  return nullptr;
}

at::Tensor softmax(const at::Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype) {
  const char* reason = reason_for_aten(x, dim, dtype);
  if (!reason) {
    constexpr int64_t elements_worth_waking = 8192;
    const int64_t width = x.size(-1), rows = x.numel() / width;
    const at::ScalarType result = dtype.value_or(x.scalar_type());
    const bool is_copied = !x.is_contiguous();
    const at::Tensor dense = contiguous_result(x);
    const at::Tensor y =
        is_copied && result == x.scalar_type() ? dense : empty_result(x.sizes(), x.options().dtype(result));
    const bool is_float = x.scalar_type() == at::kFloat;
    const RowsToRead from(dense, width);
    const RowsToWrite to(y, width);
    const auto softmax_rows = kernels().softmax.softmax_rows;
    std::atomic<bool> ordinary{true};
    const int64_t grain = grain_of(rows, x.numel(), elements_worth_waking);
    at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
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
    if (ordinary) return y;
    reason = "a row is not finite";
  }
  RECORD_FUNCTION(c10::str("ipex::softmax in aten: ", reason), {});
  return at::softmax(x, dim, dtype);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) { m.def("softmax(Tensor x, int dim, ScalarType? dtype) -> Tensor", softmax); }

}  // namespace
}  // namespace ipex::runtime
