// batch_norm in eval mode, and the activation that follows it, in one pass over memory.
//
//   ipex::batch_norm(x, weight, bias, running_mean, running_var, eps, relu, post_ops) -> y
//     y = x * scale + shift for each channel, dimension 1, as aten computes it; then relu, if so; then the post-ops, those
//     of packed/post_ops.inc that have no operand.
//
// The kernels take float32, contiguous or channels-last, and keep the layout. All else is left to aten; a profiler shows
// it, with the reason, under the name of the op. Not so an input that requires a gradient: aten's own is wrong where the
// gradient that arrives is laid out differently from the input (torch 2.13).
#include "ops/norms/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "threads/grain.h"

namespace ipex::runtime {
namespace {

// The format in which x is dense. aten gives its result the same, and asks in the same order.
std::optional<at::MemoryFormat> format_of(const at::Tensor& x) {
  if (x.is_contiguous()) return at::MemoryFormat::Contiguous;
  const auto format = x.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  return (x.dim() == 4 || x.dim() == 5) && x.is_contiguous(format) ? std::optional(format) : std::nullopt;
}

// Whether channels lie one after another. A single pixel of each is a row of channels.
bool has_planes(const at::Tensor& x) {
  return *format_of(x) == at::MemoryFormat::Contiguous && x.numel() > x.size(0) * x.size(1);
}

const char* reason_for_aten(const at::Tensor& x, const BatchNorm& norm) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (!is_plain_cpu_float(x)) return "its input is not a float32 CPU tensor";
  if (x.dim() < 2 || x.numel() == 0 || !format_of(x)) return "its input is not dense";
  return norm.reason_for_aten(x.size(1));
}

const float* data_or_null(const OptionalTensor& tensor) {
  return tensor && tensor->defined() ? tensor->const_data_ptr<float>() : nullptr;
}

at::Tensor in_aten(const char* reason, const at::Tensor& x, const BatchNorm& norm) {
  RECORD_FUNCTION(c10::str("ipex::batch_norm in aten: ", reason), {});
  const at::Tensor y = at::batch_norm(x, norm.weight, norm.bias, norm.mean, norm.variance, /*training=*/false,
                                      /*momentum=*/0, norm.eps, /*cudnn_enabled=*/false);
  return norm.relu ? at::relu(y) : y;
}

// x itself. The gradient that it gets is laid out as x is: one of aten's before it needs that.
class GradientLaidOut : public torch::autograd::Function<GradientLaidOut> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->saved_data["format"] = static_cast<int64_t>(*format_of(x));
    return x.view_as(x);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    return {gradients[0].contiguous(static_cast<at::MemoryFormat>(context->saved_data["format"].toInt()))};
  }
};

// The same out of ops whose gradients are right in every layout.
at::Tensor differentiable(const at::Tensor& given, const BatchNorm& norm) {
  const at::Tensor x = GradientLaidOut::apply(given);
  const auto is_there = [](const OptionalTensor& tensor) { return tensor && tensor->defined(); };
  std::vector<int64_t> along_channels(x.dim(), 1);
  along_channels[1] = -1;
  at::Tensor scale = (*norm.variance + norm.eps).sqrt().reciprocal();
  if (is_there(norm.weight)) scale = scale * *norm.weight;
  const at::Tensor shift = (is_there(norm.bias) ? *norm.bias : at::zeros_like(*norm.mean)) - *norm.mean * scale;
  const at::Tensor y = x * scale.view(along_channels) + shift.view(along_channels);
  return norm.relu ? at::relu(y) : y;
}

// Work on rows, with a part of them for each thread.
template <typename Work>
void over_rows(int64_t rows, int64_t elements, Work&& work) {
  constexpr int64_t elements_worth_waking = 16384;
  at::parallel_for(0, rows, grain_of(rows, elements, elements_worth_waking), work);
}

// y = x * scale + shift, and the steps, on the kernels that apply a group_norm.
void scale_in_steps(const at::Tensor& x, const float* scale, const float* shift, const ElementwiseSteps& steps,
                    const at::Tensor& y) {
  const int64_t channels = x.size(1), size = x.numel() / (x.size(0) * channels);
  const GroupNormKernels& kernels = runtime::kernels().group_norm.floats;
  const std::vector<float> around(static_cast<size_t>(channels), 0);
  const auto* from = x.const_data_ptr<float>();
  auto* to = y.mutable_data_ptr<float>();
  if (has_planes(x)) {
    over_rows(x.size(0) * channels, x.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * size, channel = row % channels;
        kernels.normalize_run(from + at, size, size, 0, {around.data(), scale + channel, shift + channel}, steps,
                              to + at);
      }
    });
    return;
  }
  over_rows(x.numel() / channels, x.numel(), [&](int64_t begin, int64_t end) {
    const int64_t at = begin * channels;
    kernels.normalize_pixels(from + at, end - begin, channels, channels, {around.data(), scale, shift}, steps, to + at);
  });
}

}  // namespace

const char* BatchNorm::reason_for_aten(int64_t channels) const {
  if (!mean || !variance) return "it has no statistics";
  for (const OptionalTensor* parameter : {&weight, &bias, &mean, &variance}) {
    const at::Tensor tensor = parameter->value_or(at::Tensor());
    if (!tensor.defined()) continue;
    if (!is_plain_cpu_float(tensor) || !tensor.is_contiguous()) return "a parameter is not a float32 CPU tensor";
    if (wants_gradient(tensor)) return "a parameter requires a gradient";
    if (tensor.dim() != 1 || tensor.size(0) != channels) return "a parameter has another size";
  }
  return nullptr;
}

at::Tensor BatchNorm::scales_and_shifts() const {
  const int64_t channels = mean->size(0);
  const at::Tensor result = at::empty({2, channels}, mean->options());
  float* scale = result.mutable_data_ptr<float>();
  const bool ordinary = kernels().channels.scales_and_shifts(
      data_or_null(weight), data_or_null(bias), mean->const_data_ptr<float>(), variance->const_data_ptr<float>(),
      static_cast<float>(eps), channels, scale, scale + channels);
  return ordinary ? result : at::Tensor();
}

at::Tensor batch_norm(const at::Tensor& x, const BatchNorm& norm, const Activations& activations) {
  if (const char* reason = reason_for_aten(x, norm)) return activations.with_all(in_aten(reason, x, norm));
  if (wants_gradient(x)) return activations.with_all(differentiable(x, norm));
  const at::Tensor scales = norm.scales_and_shifts();
  if (!scales.defined()) return activations.with_all(in_aten("a parameter is very large", x, norm));
  const int64_t channels = x.size(1), size = x.numel() / (x.size(0) * channels);
  const at::Tensor y = empty_result(x.sizes(), x.options().memory_format(*format_of(x)));
  const float *scale = scales.const_data_ptr<float>(), *shift = scale + channels, *from = x.const_data_ptr<float>();
  if (!norm.relu && !activations.empty()) {
    KernelSteps::Room room;
    scale_in_steps(x, scale, shift, activations.steps(channels, room), y);
    return activations.with_rest(y);
  }
  float* to = y.mutable_data_ptr<float>();
  const bool is_contiguous = has_planes(x);
  const ChannelKernels& kernels = runtime::kernels().channels;
  over_rows(x.numel() / (is_contiguous ? size : channels), x.numel(), [&](int64_t begin, int64_t end) {
    if (!is_contiguous) {
      const int64_t at = begin * channels;
      return kernels.scale_pixels(from + at, channels, scale, shift, end - begin, channels, norm.relu, to + at,
                                  channels);
    }
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * size, channel = row % channels;
      kernels.scale_plane(from + at, scale[channel], shift[channel], size, norm.relu, to + at);
    }
  });
  return activations.with_all(y);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.def(
      "batch_norm(Tensor x, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, float eps, "
      "bool relu, str[] post_ops) -> Tensor",
      [](const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias, const OptionalTensor& mean,
         const OptionalTensor& variance, double eps, bool relu, const std::vector<std::string>& texts) {
        return batch_norm(x, {weight, bias, mean, variance, eps, relu}, {"ipex::batch_norm", texts});
      });
}

}  // namespace ipex::runtime
