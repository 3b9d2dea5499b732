// A convolution of 3x3 windows whose weight changes from step to step, as in training: docs/decisions/modules.md.
//
//   ipex::trained_convolution(image, weight, bias, padding) -> Tensor       as at::conv2d, windows one pixel apart
//   ipex::has_trained_convolution(channels, results) -> bool                whether there are enough channels
//   ipex::trained_convolution_pays(image, weight, padding) -> bool          whether there is enough to multiply
//
// Where it pays it goes Winograd's way, and else aten's. The weight is transformed in each call and not
// kept: a packed copy could not tell that somebody wrote to `weight.data`.
//
// The gradient of the image is the same convolution, of the result's gradient with the weight turned around.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>

#include "ops/convolution/winograd.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

using at::Tensor;

bool has_trained_convolution(int64_t channels, int64_t results) {
  return WinogradSize{1, channels, results}.is_worth_it();
}

WinogradSize size_of(const Tensor& weight) { return {/*groups=*/1, weight.size(1), weight.size(0)}; }

// Of the result.
std::array<int64_t, 4> sizes_of(const Tensor& image, const Tensor& weight, at::IntArrayRef padding) {
  return {image.size(0), weight.size(0), image.size(2) + 2 * padding[0] - 2, image.size(3) + 2 * padding[1] - 2};
}

bool is_float(const Tensor& x) {
  return x.is_cpu() && x.layout() == at::kStrided && x.scalar_type() == at::kFloat && !x.is_neg();
}

bool trained_convolution_pays(const Tensor& image, const Tensor& weight, at::IntArrayRef padding) {
  TORCH_CHECK_VALUE(weight.dim() == 4 && weight.size(2) == 3 && weight.size(3) == 3 && padding.size() == 2,
                    "ipex::trained_convolution: expected a weight [results, channels, 3, 3] and two paddings, got ",
                    weight.sizes(), " and ", padding, ".");
  if (!is_float(image) || !is_float(weight) || image.dim() != 4 || image.size(1) != weight.size(1)) return false;
  const auto sizes = sizes_of(image, weight, padding);
  return image.numel() > 0 && sizes[2] > 0 && sizes[3] > 0 &&
         Winograd::form_for(size_of(weight), sizes, /*dilation=*/{1, 1}) == Winograd::Form::transformed;
}

Tensor trained_convolution(const Tensor& image, const Tensor& weight, const std::optional<Tensor>& bias,
                           at::IntArrayRef padding) {
  const auto by_aten = [&] { return at::conv2d(image, weight, bias, {1, 1}, padding); };
  const bool takes_bias = !bias || (is_float(*bias) && bias->dim() == 1 && bias->size(0) == weight.size(0));
  if (!trained_convolution_pays(image, weight, padding) || !takes_bias) return by_aten();

  const Winograd winograd([&] { return weight; }, size_of(weight), Winograd::Form::transformed, StoredForms());
  const Tensor source = image.contiguous(at::MemoryFormat::ChannelsLast);
  const Tensor result =
      at::empty(sizes_of(image, weight, padding), image.options().memory_format(at::MemoryFormat::ChannelsLast));
  const Tensor added = bias ? bias->contiguous() : Tensor();
  const ElementwiseSteps steps{bias ? added.const_data_ptr<float>() : nullptr, nullptr, 0, weight.size(0)};
  // Not finite: then it is not what a sum of products gives.
  if (!winograd.convolve(source, padding, /*dilation=*/{1, 1}, steps, result)) return by_aten();
  const auto of = [](const Tensor& x) { return x.suggest_memory_format() == at::MemoryFormat::ChannelsLast; };
  return of(image) || of(weight) ? result : result.contiguous();
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "trained_convolution(Tensor image, Tensor weight, Tensor? bias, int[2] padding) -> Tensor",
         trained_convolution);
  define(m, "trained_convolution_pays(Tensor image, Tensor weight, int[2] padding) -> bool", trained_convolution_pays);
  define(m, "has_trained_convolution(int channels, int results) -> bool", has_trained_convolution);
}

}  // namespace
}  // namespace ipex::runtime
