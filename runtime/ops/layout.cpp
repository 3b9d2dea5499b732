// The borders of a stretch of the graph that runs on channels-last activations.
//
//   ipex::to_channels_last(x) -> Tensor                  on the way in
//   ipex::is_channels_last(x) -> bool                    asked of the same x: then eager's layout is no other
//   ipex::restore_layout(y, is_channels_last) -> Tensor  on the way out: contiguous, as eager has it, if it is another
//
// An unbatched image, [channels, height, width], counts as a batch of one.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/memory_format.h"

namespace ipex::runtime {
namespace {

at::Tensor to_channels_last(const at::Tensor& x) {
  return x.dim() == 4 && x.layout() == at::kStrided ? x.contiguous(at::MemoryFormat::ChannelsLast) : x;
}

bool is_channels_last(const at::Tensor& x) {
  if (x.layout() != at::kStrided) return false;
  return (x.dim() == 3 ? x.unsqueeze(0) : x).suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

at::Tensor restore_layout(const at::Tensor& y, bool is_channels_last) {
  return is_channels_last || y.layout() != at::kStrided ? y : with_format(y, at::MemoryFormat::Contiguous);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.def("to_channels_last(Tensor(a) x) -> Tensor(a)", to_channels_last);
  m.def("is_channels_last(Tensor x) -> bool", is_channels_last);
  m.def("restore_layout(Tensor(a) y, bool is_channels_last) -> Tensor(a)", restore_layout);
}

}  // namespace
}  // namespace ipex::runtime
