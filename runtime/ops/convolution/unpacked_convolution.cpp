// Convolutions whose weight a model computes, as mixtures of experts and dynamic filters do: nothing can be packed ahead.
//
//   ipex::unpacked_convolution(x, weight, bias, stride, padding, dilation, groups, of_batches) -> Tensor
//     aten::conv2d, or with `of_batches` aten::_convolution, which takes no image without a batch
//   ipex::image_weights_convolution(x, sizes, weight, bias, .., of_batches, views, permutes, images, channels) -> Tensor
//     with a weight for each image: of x.reshape(sizes), or with `views` x.view(sizes), the groups of one image; with
//     `permutes` these become images, and the result is reshaped to [images, channels, ..]. Of one image it lies as x does,
//     else contiguous
//
// The kernel of depthwise convolutions asks little of a weight: it is put into order in each call. A contiguous image is made
// channels-last for it, and the result contiguous again, as eager gives it. Windows of one pixel are a product of the weight
// with the image, both as they lie; aten turns one of them. All else is aten's; a profiler shows the reason.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "memory/result_memory.h"
#include "ops/convolution/convolution_geometry.h"
#include "ops/convolution/convolution_strips.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/memory_format.h"
#include "packed/window_count.h"

namespace ipex::runtime {
namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

struct Geometry {
  IntArrayRef stride, padding, dilation;
  int64_t groups;

  int64_t result_size(const Tensor& x, const Tensor& weight, size_t i) const {
    const auto dimension = static_cast<int64_t>(2 + i);
    return window_count(x.size(dimension) + 2 * padding[i], weight.size(dimension), 1, stride[i]);
  }

  // What both ways ask for.
  const char* reason_for_aten(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) const {
    if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
    for (const Tensor& tensor : {x, weight, bias.value_or(x)}) {
      if (!is_plain_cpu_float(tensor)) return "an input is no plain CPU tensor of float32";
      if (wants_gradient(tensor)) return "an input requires a gradient";
    }
    if (x.dim() != 4 || weight.dim() != 4 || stride.size() != 2 || padding.size() != 2 || dilation.size() != 2) {
      return "it is not of images in batches";
    }
    if (x.numel() == 0 || weight.numel() == 0) return "an input is empty";
    if (groups < 1 || weight.size(0) % groups != 0 || weight.size(1) * groups != x.size(1))
      return "its sizes do not fit";
    if (bias && (bias->dim() != 1 || bias->size(0) != weight.size(0) || !bias->is_contiguous())) {
      return "its bias is another";
    }
    if (weight.suggest_memory_format() != at::MemoryFormat::Contiguous) return "its weight is channels-last";
    return nullptr;
  }

  bool is_pointwise(const Tensor& x, const Tensor& weight) const {
    const bool lies_as_read = groups == 1 || x.suggest_memory_format() == at::MemoryFormat::Contiguous;
    return lies_as_read && weight.size(1) > 1 && weight.size(2) == 1 && weight.size(3) == 1 && all_are(stride, 1) &&
           all_are(padding, 0) && dilation[0] > 0 && dilation[1] > 0;
  }

  // Both where the image is contiguous and where it is channels-last and has one group.
  Tensor pointwise(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) const {
    const auto format = x.suggest_memory_format();
    const int64_t images = x.size(0), channels = weight.size(0), pixels = x.size(2) * x.size(3);
    const Tensor image = contiguous_result(x, format), factors = contiguous_result(weight);
    const Tensor result = empty_result({images, channels, x.size(2), x.size(3)}, x.options().memory_format(format));
    if (format == at::MemoryFormat::ChannelsLast) {
      Tensor rows = result.permute({0, 2, 3, 1}).view({images * pixels, channels});
      const Tensor left = image.permute({0, 2, 3, 1}).view({images * pixels, x.size(1)});
      const Tensor right = factors.view({channels, x.size(1)}).t();
      bias ? at::addmm_out(rows, *bias, left, right) : at::mm_out(rows, left, right);
      return result;
    }
    const Tensor left = factors.view({groups, channels / groups, weight.size(1)});
    const Tensor right = image.view({images, groups, weight.size(1), pixels});
    const Tensor planes = result.view({images, groups, channels / groups, pixels});
    const Tensor added = bias ? bias->view({groups, channels / groups, 1}) : Tensor();
    for (int64_t n = 0; n < images; ++n) {
      Tensor to = planes[n];
      if (groups == 1) {
        to = to[0];
        bias ? at::addmm_out(to, added[0], left[0], right[n][0]) : at::mm_out(to, left[0], right[n][0]);
      } else if (bias) {
        at::baddbmm_out(to, added, left, right[n]);
      } else {
        at::bmm_out(to, left, right[n]);
      }
    }
    return result;
  }

  const char* reason_against_depthwise(const Tensor& x, const Tensor& weight) const {
    const int64_t channels = x.size(1);
    if (groups != channels || weight.size(0) != channels || channels < 2) return "it is not depthwise";
    for (size_t i = 0; i < 2; ++i) {
      if (dilation[i] != 1 || stride[i] < 1 || padding[i] < 0) return "its windows have gaps, or its image is cut";
      if (x.size(static_cast<int64_t>(2 + i)) + 2 * padding[i] < weight.size(static_cast<int64_t>(2 + i))) {
        return "its window is larger than the image";
      }
    }
    constexpr int64_t most_elements = 160 << 10;  // of more, the copies cost what the kernel gains
    const bool is_copied = x.suggest_memory_format() == at::MemoryFormat::Contiguous;
    return is_copied && x.numel() > most_elements ? "its image is large" : nullptr;
  }

  // `windows` are the weight, channels last.
  Tensor depthwise(const Tensor& x, const Tensor& weight, const Tensor& windows, const OptionalTensor& bias) const {
    const Tensor image = contiguous_result(x, at::MemoryFormat::ChannelsLast);
    const int64_t channels = x.size(1), height = result_size(x, weight, 0), width = result_size(x, weight, 1);
    const Tensor result =
        empty_result({x.size(0), channels, height, width}, x.options().memory_format(at::MemoryFormat::ChannelsLast));
    const ElementwiseSteps steps{bias ? bias->const_data_ptr<float>() : nullptr, nullptr, 0, channels};
    convolve(depthwise_strips(image, windows, stride, dilation, padding, steps, result));
    return with_format(result, x.suggest_memory_format());
  }
};

bool are_finite(const Tensor& windows) {
  const float* first = windows.const_data_ptr<float>();
  return std::all_of(first, first + windows.numel(), [](float tap) { return std::isfinite(tap); });
}

Tensor unpacked_convolution(const Tensor& x, const Tensor& weight, const OptionalTensor& bias, IntArrayRef stride,
                            IntArrayRef padding, IntArrayRef dilation, int64_t groups, bool of_batches) {
  const Geometry geometry{stride, padding, dilation, groups};
  const char* reason = geometry.reason_for_aten(x, weight, bias);
  if (!reason && geometry.is_pointwise(x, weight)) return geometry.pointwise(x, weight, bias);
  if (!reason) reason = geometry.reason_against_depthwise(x, weight);
  if (!reason) {
    const Tensor windows = contiguous_result(weight.squeeze(1).permute({1, 2, 0}));
    if (are_finite(windows)) return geometry.depthwise(x, weight, windows, bias);
    reason = "its weight has NaN or infinity";  // the kernel leaves padding out, which aten multiplies
  }
  const LeftToAten left(reason, "ipex::unpacked_convolution");
  if (!of_batches) return at::conv2d(x, weight, bias, stride, padding, dilation, groups);
  if (at::autocast::is_autocast_enabled(at::kCPU)) {  // which knows no aten::convolution
    const auto of_rank = [&](auto convolution) {
      return convolution(x, weight, bias, stride, padding, dilation, groups);
    };
    if (x.dim() == 3) return of_rank([](auto&&... all) { return at::conv1d(all...); });
    if (x.dim() == 4) return of_rank([](auto&&... all) { return at::conv2d(all...); });
    if (x.dim() == 5) return of_rank([](auto&&... all) { return at::conv3d(all...); });
  }
  const std::vector<int64_t> none(stride.size(), 0);
  return at::convolution(x, weight, bias, stride, padding, dilation, /*transposed=*/false, none, groups);
}

Tensor image_weights_convolution(const Tensor& x, IntArrayRef sizes, const Tensor& weight, const OptionalTensor& bias,
                                 IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups,
                                 bool of_batches, bool views, bool permutes, int64_t images, int64_t channels) {
  const auto convolved = [&](const Tensor& image) {
    return unpacked_convolution(image, weight, bias, stride, padding, dilation, groups, of_batches);
  };
  if (x.sizes() == sizes && images == 1 && channels == weight.size(0)) return convolved(x);
  Tensor result = convolved(views ? x.view(sizes) : x.reshape(sizes));
  if (permutes) result = result.permute({1, 0, 2, 3});
  return result.reshape({images, channels, result.size(2), result.size(3)});
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m,
         "image_weights_convolution(Tensor x, int[] sizes, Tensor weight, Tensor? bias, int[] stride, int[] padding, "
         "int[] dilation, int groups, bool of_batches, bool views, bool permutes, int images, int channels) "
         "-> Tensor",
         image_weights_convolution);
  define(m,
         "unpacked_convolution(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, "
         "int groups, bool of_batches) -> Tensor",
         unpacked_convolution);
}

}  // namespace
}  // namespace ipex::runtime
