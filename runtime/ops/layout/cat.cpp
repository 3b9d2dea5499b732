// Tensors joined, in memory that is kept between calls (result_memory.h).
//
//   ipex::cat(tensors, dim) -> Tensor    as aten::cat
//
// The copying is aten's. What joins the keys and values of a whole text with those of a new word, a step of a
// language model, makes large results at every call, and malloc would take their pages from the system each time.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <algorithm>

#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/memory_format.h"

namespace ipex::runtime {
namespace {

bool fits(const at::Tensor& tensor, const at::Tensor& first, int64_t dim) {
  if (!is_plain_cpu(tensor) || wants_gradient(tensor)) return false;
  if (tensor.scalar_type() != first.scalar_type() || tensor.dim() != first.dim()) return false;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (i != dim && tensor.size(i) != first.size(i)) return false;
  }
  return true;
}

at::Tensor cat(at::TensorList tensors, int64_t dim) {
  if (tensors.empty() || at::autocast::is_autocast_enabled(at::kCPU)) return at::cat(tensors, dim);
  const at::Tensor& first = tensors.front();
  const int64_t joined = dim < 0 ? dim + first.dim() : dim;
  const bool fit = joined >= 0 && joined < first.dim() &&
                   std::all_of(tensors.begin(), tensors.end(), [&](const auto& t) { return fits(t, first, joined); });
  // What does not fit may be right all the same: empty vectors do not count, and dtypes are promoted.
  if (!fit) return at::cat(tensors, dim);

  std::vector<int64_t> sizes = first.sizes().vec();
  for (const at::Tensor& tensor : tensors.slice(1)) sizes[joined] += tensor.size(joined);
  at::Tensor y = empty_result(sizes, first.options().memory_format(common_format(tensors)));
  const at::AutoDispatchBelowADInplaceOrView guard;
  return at::cat_out(y, tensors, dim);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) { m.def("cat(Tensor[] tensors, int dim) -> Tensor", cat); }

}  // namespace
}  // namespace ipex::runtime
