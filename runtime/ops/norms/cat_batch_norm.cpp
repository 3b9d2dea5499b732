// Tensors joined along their channels, then batch_norm in eval mode and the relu that follows it, in one pass over memory.
//
//   ipex::cat_batch_norm(tensors, weight, bias, running_mean, running_var, eps, relu) -> y
//     y = ipex::batch_norm(aten::cat(tensors, 1), ..), without the concatenation in between.
//   ipex::cat_batch_norm.bytes(.., scale, zero_point) -> ipex::quantize(y, scale, zero_point), in the same pass
//
// The kernels take float32, where all tensors are contiguous or all channels-last, pieces of channels among them; y is as
// they are. All else is done in two steps; a profiler shows that, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "ops/norms/batch_norm.h"
#include "ops/quantized/affine.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

constexpr int64_t elements_worth_threads = 16384;

bool differ_in_channels_only(const at::Tensor& a, const at::Tensor& b) {
  return a.dim() == b.dim() && a.size(0) == b.size(0) && a.sizes().slice(2) == b.sizes().slice(2);
}

const char* reason_for_two_steps(at::TensorList tensors, at::MemoryFormat format) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (tensors.empty()) return "there is nothing to join";
  for (const at::Tensor& tensor : tensors) {
    if (!is_plain_cpu_float(tensor)) return "a tensor is not a float32 CPU tensor";
    if (wants_gradient(tensor)) return "a tensor requires a gradient";
    if (tensor.dim() < 2 || tensor.numel() == 0) return "a tensor is empty, or without channels";
    if (!differ_in_channels_only(tensor, tensors.front())) return "the tensors do not fit together";
    // One channel alone is taken for a plane, below.
    const bool is_piece = format == at::MemoryFormat::ChannelsLast && tensors.size() > 1 && lies_in_pixels(tensor);
    if (!is_piece && !tensor.is_contiguous(format)) return "a tensor is not dense, or laid out differently";
  }
  return nullptr;
}

// The channels of each pixel are side by side. Every tensor writes a part of each pixel of y, so that a few pixels at a
// time are written whole, while they are near.
// write(x, pixel stride, first channel, pixels, channels, index in y) does the part of one tensor.
template <typename Write>
void join_pixels(at::TensorList tensors, const at::Tensor& y, Write&& write) {
  constexpr int64_t pixels_at_once = 64;
  const int64_t channels = y.size(1), pixels = y.numel() / channels;
  parallel_for(pixels, grain_of(pixels, pixels * channels, elements_worth_threads), [&](int64_t begin, int64_t end) {
    for (int64_t pixel = begin; pixel < end; pixel += pixels_at_once) {
      const int64_t count = std::min(pixels_at_once, end - pixel);
      int64_t channel = 0;
      for (const at::Tensor& tensor : tensors) {
        const int64_t width = tensor.size(1), stride = pixel_stride(tensor);
        write(tensor.const_data_ptr<float>() + pixel * stride, stride, channel, count, width,
              pixel * channels + channel);
        channel += width;
      }
    }
  });
}

void join_planes(at::TensorList tensors, const float* scale, const float* shift, bool relu, const at::Tensor& y) {
  const int64_t channels = y.size(1), size = y.numel() / (y.size(0) * channels);
  float* to = y.mutable_data_ptr<float>();
  const auto kernel = kernels().channels.scale_plane;
  int64_t first = 0;
  for (const at::Tensor& tensor : tensors) {
    const int64_t width = tensor.size(1);
    const float* from = tensor.const_data_ptr<float>();
    parallel_for(tensor.size(0) * width, grain_of(tensor.size(0) * width, tensor.numel(), elements_worth_threads),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row) {
                     const int64_t channel = first + row % width;
                     kernel(from + row * size, scale[channel], shift[channel], size, relu,
                            to + (row / width * channels + channel) * size);
                   }
                 });
    first += width;
  }
}

// Numbers where there is an affine.
at::Tensor joined(at::TensorList tensors, const BatchNorm& norm, const std::optional<Affine>& affine) {
  const auto rounded = [&](const at::Tensor& y) { return affine ? quantize(y, *affine) : y; };
  const auto in_two_steps = [&](const char* reason, at::TensorList all, const BatchNorm& by) {
    RECORD_FUNCTION(c10::str("ipex::cat_batch_norm in two steps: ", reason), {});
    return rounded(batch_norm(at::cat(all, 1), by, {"ipex::cat_batch_norm", {}}));
  };
  const at::MemoryFormat joined = common_format(tensors);
  if (const char* reason = reason_for_two_steps(tensors, joined)) return in_two_steps(reason, tensors, norm);
  std::vector<int64_t> sizes = tensors.front().sizes().vec();
  sizes[1] = 0;
  for (const at::Tensor& tensor : tensors) sizes[1] += tensor.size(1);
  if (const char* reason = norm.reason_for_aten(sizes[1])) return in_two_steps(reason, tensors, norm);
  const at::Tensor scales = norm.scales_and_shifts();
  if (!scales.defined()) return in_two_steps("a parameter is very large", tensors, norm);

  // What is both, of a single pixel or channel, batch_norm takes for contiguous.
  const bool is_pixel = c10::multiply_integers(sizes.begin() + 2, sizes.end()) == 1;
  const auto format = is_pixel || sizes[1] == 1 ? at::MemoryFormat::Contiguous : joined;
  const bool has_planes = format == at::MemoryFormat::Contiguous && !is_pixel;
  const bool rounds = affine && !has_planes;
  const at::Tensor y = empty_result(sizes, at::TensorOptions(rounds ? at::kByte : at::kFloat).memory_format(format));
  const float *scale = scales.const_data_ptr<float>(), *shift = scale + sizes[1];
  if (has_planes) {
    join_planes(tensors, scale, shift, norm.relu, y);
    return rounded(y);
  }
  const ChannelKernels& kernels = runtime::kernels().channels;
  if (!rounds) {
    float* to = y.mutable_data_ptr<float>();
    join_pixels(tensors, y,
                [&](const float* x, int64_t stride, int64_t channel, int64_t pixels, int64_t width, int64_t at) {
                  kernels.scale_pixels(x, stride, scale + channel, shift + channel, pixels, width, norm.relu, to + at,
                                       sizes[1]);
                });
    return y;
  }
  const AffineRounding by(*affine);
  auto* to = y.mutable_data_ptr<uint8_t>();
  join_pixels(tensors, y,
              [&](const float* x, int64_t stride, int64_t channel, int64_t pixels, int64_t width, int64_t at) {
                kernels.scale_pixels_to_bytes(x, stride, scale + channel, shift + channel, pixels, width, norm.relu,
                                              by.inverse_scale, by.zero_point, to + at, sizes[1]);
              });
  return y;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(
      m,
      "cat_batch_norm(Tensor[] tensors, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
      "float eps, bool relu, float[] rounded=[]) -> Tensor",
      [](at::TensorList tensors, const OptionalTensor& weight, const OptionalTensor& bias, const OptionalTensor& mean,
         const OptionalTensor& variance, double eps, bool relu, const std::vector<double>& rounded) {
        return joined(tensors, {weight, bias, mean, variance, eps, relu}, affine_of("ipex::cat_batch_norm", rounded));
      });
}

}  // namespace
}  // namespace ipex::runtime
