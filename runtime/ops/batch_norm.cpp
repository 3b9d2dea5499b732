// batch_norm in eval mode, and the relu that follows it, in one pass over memory.
//
//   ipex::batch_norm(x, weight, bias, running_mean, running_var, eps, relu) -> y
//     y = x * scale + shift for each channel, dimension 1, as aten computes it; then relu, if so.
//
// The kernels take float32, contiguous or channels-last, and keep the layout. All else is left to aten; a profiler shows
// it, with the reason, under the name of the op. Not so an input that requires a gradient: aten's own is wrong where the
// gradient that arrives is laid out differently from the input (torch 2.13).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "kernels/kernels.h"
#include "ops/call_conditions.h"

namespace ipex::runtime {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// The format in which x is dense. aten gives its result the same, and asks in the same order.
std::optional<at::MemoryFormat> format_of(const at::Tensor& x) {
  if (x.is_contiguous()) return at::MemoryFormat::Contiguous;
  const auto format = x.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  return (x.dim() == 4 || x.dim() == 5) && x.is_contiguous(format) ? std::optional(format) : std::nullopt;
}

const char* reason_for_aten(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                            const OptionalTensor& mean, const OptionalTensor& variance) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (!is_plain_cpu_float(x)) return "its input is not a float32 CPU tensor";
  if (x.dim() < 2 || x.numel() == 0 || !format_of(x)) return "its input is not dense";
  if (!mean || !variance) return "it has no statistics";
  for (const OptionalTensor* parameter : {&weight, &bias, &mean, &variance}) {
    const at::Tensor tensor = parameter->value_or(at::Tensor());
    if (!tensor.defined()) continue;
    if (!is_plain_cpu_float(tensor) || !tensor.is_contiguous()) return "a parameter is not a float32 CPU tensor";
    if (wants_gradient(tensor)) return "a parameter requires a gradient";
    if (tensor.dim() != 1 || tensor.size(0) != x.size(1)) return "a parameter has another size";
  }
  return nullptr;
}

const float* data_or_null(const OptionalTensor& tensor) {
  return tensor && tensor->defined() ? tensor->const_data_ptr<float>() : nullptr;
}

at::Tensor in_aten(const char* reason, const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                   const OptionalTensor& mean, const OptionalTensor& variance, double eps, bool relu) {
  RECORD_FUNCTION(c10::str("ipex::batch_norm in aten: ", reason), {});
  const at::Tensor y = at::batch_norm(x, weight, bias, mean, variance, /*training=*/false, /*momentum=*/0, eps,
                                      /*cudnn_enabled=*/false);
  return relu ? at::relu(y) : y;
}

// The same out of ops whose gradients are right in every layout.
at::Tensor differentiable(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                          const at::Tensor& mean, const at::Tensor& variance, double eps, bool relu) {
  const auto is_there = [](const OptionalTensor& tensor) { return tensor && tensor->defined(); };
  std::vector<int64_t> along_channels(x.dim(), 1);
  along_channels[1] = -1;
  at::Tensor scale = (variance + eps).sqrt().reciprocal();
  if (is_there(weight)) scale = scale * *weight;
  const at::Tensor shift = (is_there(bias) ? *bias : at::zeros_like(mean)) - mean * scale;
  const at::Tensor y = x * scale.view(along_channels) + shift.view(along_channels);
  return relu ? at::relu(y) : y;
}

at::Tensor batch_norm(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                      const OptionalTensor& mean, const OptionalTensor& variance, double eps, bool relu) {
  if (const char* reason = reason_for_aten(x, weight, bias, mean, variance)) {
    return in_aten(reason, x, weight, bias, mean, variance, eps, relu);
  }
  if (wants_gradient(x)) return differentiable(x, weight, bias, *mean, *variance, eps, relu);
  const int64_t channels = x.size(1), size = x.numel() / (x.size(0) * channels);
  const at::Tensor scales = at::empty({2, channels}, x.options());
  float *scale = scales.mutable_data_ptr<float>(), *shift = scale + channels;
  const ChannelKernels& kernels = runtime::kernels().channels;
  if (!kernels.scales_and_shifts(data_or_null(weight), data_or_null(bias), mean->const_data_ptr<float>(),
                                 variance->const_data_ptr<float>(), static_cast<float>(eps), channels, scale, shift)) {
    return in_aten("a parameter is very large", x, weight, bias, mean, variance, eps, relu);
  }
  const at::Tensor y = at::empty(x.sizes(), x.options().memory_format(*format_of(x)));
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  const bool is_contiguous = *format_of(x) == at::MemoryFormat::Contiguous && size > 1;
  const int64_t rows = x.numel() / (is_contiguous ? size : channels), width = x.numel() / rows;
  constexpr int64_t elements_worth_a_thread = 16384;
  at::parallel_for(0, rows, std::max<int64_t>(1, elements_worth_a_thread / width), [&](int64_t begin, int64_t end) {
    if (!is_contiguous) {
      const int64_t at = begin * channels;
      return kernels.scale_pixels(from + at, scale, shift, end - begin, channels, relu, to + at);
    }
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * size, channel = row % channels;
      kernels.scale_plane(from + at, scale[channel], shift[channel], size, relu, to + at);
    }
  });
  return y;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.def(
      "batch_norm(Tensor x, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, float eps, "
      "bool relu) -> Tensor",
      batch_norm);
}

}  // namespace
}  // namespace ipex::runtime
