// softmax of the last dimension, with a faster exponential than aten's.
//
//   ipex::softmax(x, dim, dtype) -> Tensor
//
// The kernel takes float32 rows of ordinary numbers, and -infinity beside them. Rows that are no runs of memory, as where
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
#include "packed/call_conditions.h"
#include "packed/memory_format.h"
#include "threads/grain.h"

namespace ipex::runtime {
namespace {

const char* reason_for_aten(const at::Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (!is_plain_cpu_float(x) || dtype.value_or(at::kFloat) != at::kFloat) return "it is not a float32 CPU tensor";
  if (wants_gradient(x)) return "it requires a gradient";
  if (x.dim() == 0 || x.numel() == 0 || (dim != -1 && dim != x.dim() - 1)) return "it is not of the last dimension";
  return nullptr;
}

at::Tensor softmax(const at::Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype) {
  const char* reason = reason_for_aten(x, dim, dtype);
  if (!reason) {
    constexpr int64_t elements_worth_waking = 8192;
    const int64_t width = x.size(-1), rows = x.numel() / width;
    const bool is_copied = !x.is_contiguous();
    const at::Tensor y = is_copied ? contiguous_result(x) : empty_result(x.sizes(), x.options());
    float* to = y.mutable_data_ptr<float>();
    const float* from = is_copied ? to : x.const_data_ptr<float>();
    std::atomic<bool> ordinary{true};
    const int64_t grain = grain_of(rows, x.numel(), elements_worth_waking);
    at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * width;
      if (!kernels().softmax.softmax_rows(from + at, end - begin, width, to + at)) ordinary = false;
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
