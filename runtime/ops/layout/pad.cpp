// Images with a border, as models of windows give them one that may be empty.
//
//   ipex::pad(x, pads, mode, value, may_be_input) -> Tensor    as aten::pad
//
// With `may_be_input` nobody can tell the result from x, and where nothing is padded it is x. aten copies then too; and it fills all of
// a padded image before it copies. Here only the border is filled. Constant numbers around plain tensors; all else is left to aten,
// also what aten refuses. A profiler shows that, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>

#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/copy_elements.h"

namespace ipex::runtime {
namespace {

const char* reason_for_aten(const at::Tensor& x, at::IntArrayRef pads, c10::string_view mode) {
  if (mode != "constant") return "its border is no number";
  if (!is_plain_cpu(x) || x.is_quantized()) return "it is not a plain CPU tensor";
  if (wants_gradient(x)) return "it requires a gradient";
  if (x.numel() == 0) return "it is empty";
  const bool fits = pads.size() % 2 == 0 && static_cast<int64_t>(pads.size()) <= 2 * x.dim();
  const bool cuts = std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad < 0; });
  return !fits || cuts ? "its pads do not fit, or cut" : nullptr;
}

at::Tensor pad(const at::Tensor& x, at::IntArrayRef pads, c10::string_view mode, std::optional<double> value,
               bool may_be_input) {
  const char* reason = reason_for_aten(x, pads, mode);
  const bool pads_nothing = std::all_of(pads.begin(), pads.end(), [](int64_t pad) { return pad == 0; });
  if (!reason && pads_nothing) {
    if (may_be_input && x.is_contiguous()) return x;
    reason = "nothing is padded";
  }
  if (reason) {
    RECORD_FUNCTION(c10::str("ipex::pad in aten: ", reason), {});
    return at::pad(x, pads, mode, value);
  }
  // Pads count dimensions from the last one.
  const auto pad_of = [&](int64_t dimension, int64_t side) {
    const auto at = static_cast<size_t>(2 * (x.dim() - 1 - dimension) + side);
    return at < pads.size() ? pads[at] : 0;
  };
  at::DimVector sizes(x.sizes());
  for (int64_t d = 0; d < x.dim(); ++d) sizes[static_cast<size_t>(d)] += pad_of(d, 0) + pad_of(d, 1);
  const at::Tensor y = empty_result(sizes, x.options().memory_format(x.suggest_memory_format()));
  at::Tensor inside = y;
  for (int64_t d = 0; d < x.dim(); ++d) {
    const int64_t before = pad_of(d, 0), after = pad_of(d, 1), size = x.size(d);
    if (before > 0) inside.narrow(d, 0, before).fill_(value.value_or(0));
    if (after > 0) inside.narrow(d, before + size, after).fill_(value.value_or(0));
    inside = inside.narrow(d, before, size);
  }
  copy_elements(inside, x);
  return y;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.def("pad(Tensor(a) x, int[] pads, str mode, float? value, bool may_be_input) -> Tensor(a)", pad);
}

}  // namespace
}  // namespace ipex::runtime
