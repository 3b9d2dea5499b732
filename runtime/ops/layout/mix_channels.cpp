// Few channels of an image, or heads of an attention, become others: a sum of planes for each of them.
//
//   ipex::mix_channels(x, weight, bias) -> Tensor    as the convolution of single pixels with weight [outputs, inputs]
//
// The kernel takes contiguous float32 images without gradients, and gives one. All else is aten's; a profiler shows it, with
// the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/damaged.h"
#include "packed/door.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

const char* reason_for_aten(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  for (const at::Tensor* tensor : {&x, &weight, &bias}) {
    if (!tensor->defined()) continue;
    if (!is_plain_cpu_float(*tensor)) return "its input is not a float32 CPU tensor";
    if (wants_gradient(*tensor)) return "its input requires a gradient";
    if (!tensor->is_contiguous()) return "its input is not contiguous";
  }
  if (x.dim() != 4 || x.size(1) != weight.size(1) || x.numel() == 0 || weight.numel() == 0 ||
      weight.numel() != weight.size(0) * weight.size(1)) {
    return "its input is not an image with such channels";
  }
  return bias.defined() && bias.numel() != weight.size(0) ? "its bias does not fit" : nullptr;
}

at::Tensor mix_channels(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& maybe_bias) {
  TORCH_CHECK(weight.dim() == 2 || weight.dim() == 4,
              "ipex::mix_channels: expected a weight of 2 or 4 dimensions, got ", weight.sizes(), damaged);
  const at::Tensor bias = maybe_bias.value_or(at::Tensor());
  if (const char* reason = reason_for_aten(x, weight, bias)) {
    const LeftToAten left(reason, "ipex::mix_channels");
    return at::conv2d(x, weight.dim() == 2 ? weight.unsqueeze(-1).unsqueeze(-1) : weight, bias);
  }
  const int64_t inputs = weight.size(1), outputs = weight.size(0), plane = x.size(2) * x.size(3);
  const at::Tensor y = empty_result({x.size(0), outputs, x.size(2), x.size(3)}, x.options());
  const float *from = x.const_data_ptr<float>(), *factors = weight.const_data_ptr<float>(),
              *addends = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  float* to = y.mutable_data_ptr<float>();
  constexpr int64_t elements_worth_waking = 16384, pixels_at_once = 1024;
  const int64_t blocks = at::divup(plane, pixels_at_once), pieces = x.size(0) * blocks;
  const int64_t grain = grain_of(pieces, x.numel() + y.numel(), elements_worth_waking);
  parallel_for(pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / blocks, first = i % blocks * pixels_at_once;
      kernels().channels.mix_planes(from + image * inputs * plane + first, factors, addends, plane,
                                    std::min(pixels_at_once, plane - first), inputs, outputs,
                                    to + image * outputs * plane + first);
    }
  });
  return y;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "mix_channels(Tensor x, Tensor weight, Tensor? bias) -> Tensor", mix_channels);
}

}  // namespace
}  // namespace ipex::runtime
