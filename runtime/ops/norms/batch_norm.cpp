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
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "threads/grain.h"
#include "threads/parallel.h"

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
  const LeftToAten left(reason, "ipex::batch_norm");
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

// y = x * scale + shift, then relu or the steps: for channels side by side, and for the plane of a channel. Kernels that
// apply a group_norm take steps; those of scales alone are faster.
class Scaling {
 public:
  Scaling(const at::Tensor& scales_and_shifts, bool relu, const ElementwiseSteps& steps)
      : channels_(scales_and_shifts.size(1)),
        scale_(scales_and_shifts.const_data_ptr<float>()),
        relu_(relu),
        steps_(steps),
        around_(steps.count > 0 ? static_cast<size_t>(channels_) : 0) {}

  void pixels(const float* x, int64_t count, float* y) const {
    if (around_.empty()) {
      return kernels().channels.scale_pixels(x, channels_, scale_, scale_ + channels_, count, channels_, relu_, y,
                                             channels_);
    }
    kernels().group_norm.floats.normalize_pixels(x, count, channels_, channels_,
                                                 {around_.data(), scale_, scale_ + channels_}, steps_, y);
  }

  void plane(const float* x, int64_t channel, int64_t size, float* y) const {
    const float *scale = scale_ + channel, *shift = scale + channels_;
    if (around_.empty()) return kernels().channels.scale_plane(x, *scale, *shift, size, relu_, y);
    kernels().group_norm.floats.normalize_run(x, size, size, 0, {around_.data(), scale, shift}, steps_, y);
  }

 private:
  int64_t channels_;
  const float* scale_;
  bool relu_;
  ElementwiseSteps steps_;
  std::vector<float> around_;  // zeros; none without steps
};

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
  const int64_t channels = x.size(1);
  const bool in_steps = !norm.relu && !activations.empty(), in_planes = has_planes(x);
  KernelSteps::Room room;
  const Scaling scaling(scales, norm.relu, in_steps ? activations.steps(channels, room) : ElementwiseSteps());
  const at::Tensor y = empty_result(x.sizes(), x.options().memory_format(*format_of(x)));
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  const int64_t width = in_planes ? x.numel() / (x.size(0) * channels) : channels, rows = x.numel() / width;
  constexpr int64_t elements_worth_waking = 16384;
  parallel_for(rows, grain_of(rows, x.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
    if (!in_planes) return scaling.pixels(from + begin * width, end - begin, to + begin * width);
    for (int64_t row = begin; row < end; ++row) {
      scaling.plane(from + row * width, row % channels, width, to + row * width);
    }
  });
  return in_steps ? activations.with_rest(y) : activations.with_all(y);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m,
         "batch_norm(Tensor x, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, float eps, "
         "bool relu, str[] post_ops) -> Tensor",
         [](const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias, const OptionalTensor& mean,
            const OptionalTensor& variance, double eps, bool relu, const std::vector<std::string>& texts) {
           return batch_norm(x, {weight, bias, mean, variance, eps, relu}, {"ipex::batch_norm", texts});
         });
}

}  // namespace ipex::runtime
