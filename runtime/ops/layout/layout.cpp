// The borders of a stretch of the graph that runs on channels-last activations.
//
//   ipex::to_channels_last(x, spatial_rank) -> Tensor    on the way in
//   ipex::is_channels_last(x, spatial_rank) -> bool      asked of the same x: then eager's layout is no other (in 1-d
//                                                        only that of a single place)
//   ipex::restore_layout(y, is_channels_last) -> Tensor  on the way out: contiguous, as eager has it, if it is another
//
// `spatial_rank` is that of the convolutions in the stretch. What is no image of that rank stays as it is.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/interleave_channels.h"
#include "packed/memory_format.h"

namespace ipex::runtime {
namespace {

bool is_image(const at::Tensor& x, int64_t spatial_rank) {
  return x.layout() == at::kStrided && (x.dim() == spatial_rank + 1 || x.dim() == spatial_rank + 2);
}

at::Tensor to_channels_last(const at::Tensor& x, int64_t spatial_rank) {
  // There aten computes all of it, and the layout shows: its instance_norm takes a channels-last gradient for a contiguous
  // one, and its 16-bit convolutions have NaN beside an infinity in one layout and not in the other.
  const bool is_left_to_aten = wants_gradient(x) || at::autocast::is_autocast_enabled(at::kCPU);
  if (!is_image(x, spatial_rank) || is_left_to_aten) return x;
  const at::Tensor image = as_batched_image(x, spatial_rank);
  const at::MemoryFormat format = channels_last_of(spatial_rank);
  const at::Tensor converted = channels_last_result(image, format);
  return converted.is_same(image) ? x : as_original_image(converted, x, spatial_rank);
}

bool is_channels_last(const at::Tensor& x, int64_t spatial_rank) {
  return (spatial_rank > 1 || x.is_contiguous()) && is_image(x, spatial_rank) &&
         as_batched_image(x, spatial_rank).suggest_memory_format() == channels_last_of(spatial_rank);
}

at::Tensor restore_layout(const at::Tensor& y, bool is_channels_last) {
  return is_channels_last || y.layout() != at::kStrided ? y : with_format(y, at::MemoryFormat::Contiguous);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "to_channels_last(Tensor(a) x, int spatial_rank) -> Tensor(a)", to_channels_last);
  define(m, "is_channels_last(Tensor x, int spatial_rank) -> bool", is_channels_last);
  define(m, "restore_layout(Tensor(a) y, bool is_channels_last) -> Tensor(a)", restore_layout);
}

}  // namespace
}  // namespace ipex::runtime
