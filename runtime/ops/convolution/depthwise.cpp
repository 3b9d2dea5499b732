// Each channel by itself, with enough to multiply: the kernel of kernels/depthwise.h, in strips.
#include "kernels/kernels.h"
#include "memory/weight_memory.h"
#include "ops/convolution/convolution.h"

namespace ipex::runtime {
namespace {

using at::Tensor;

// By which the kernel moves over a row.
constexpr int64_t widest_stride = 2;

// The weight as the kernel reads it: [window rows][window columns][channels].
struct DepthwiseWeight {
  Tensor weight;
};

bool gains_by_kernel(const ConvolutionGeometry& geometry, at::IntArrayRef weight) {
  // oneDNN's kernels take pixel by pixel, and so read memory in order: with few products and channels that is what counts.
  constexpr int64_t few_products = 9, enough_channels = 96, enough_products_with_gaps = 25;
  const int64_t products = weight[2] * weight[3];
  if (all_are(geometry.dilation, 1)) {
    return products > few_products || (products == few_products && weight[0] >= enough_channels);
  }
  // Beyond this padding the kernel for windows with gaps declines, and a slow one is left.
  const int64_t most_padding = kernels().depthwise.width == 16 ? 6 : 4;
  return products >= enough_products_with_gaps || geometry.begin[1] > most_padding;
}

// Whether oneDNN's would have it copied, which costs more than they save.
bool is_piece(const Tensor& image) { return lies_in_pixels(image) && pixel_stride(image) > image.size(1); }

}  // namespace

const ConvolutionContext::Algorithm ConvolutionContext::depthwise{
    "depthwise",
    [](const Call& call) {
      const ConvolutionContext& layer = call.layer;
      if (const char* reason = layer.reason_against_own_kernels()) return reason;
      if (!layer.is_depthwise()) return "it is not depthwise";
      const ConvolutionGeometry& geometry = layer.geometry_;
      if (geometry.stride[1] > widest_stride) return "its windows are too far apart";
      const bool gains =
          gains_by_kernel(geometry, layer.weight_sizes()) || (all_are(geometry.dilation, 1) && is_piece(call.image));
      return gains ? nullptr : "it has few products for what it reads";
    },
    [](Call& call) {
      const Tensor image = call.image_in_pixels(), weight = call.layer.depthwise_weight();
      return call.layer.compute(call, [&](const ElementwiseSteps& steps, const Tensor& result) {
        convolve(call.layer.strips(image, weight, steps, result));
        return true;
      });
    }};

bool ConvolutionContext::is_depthwise() const {
  return !reason_against_own_kernels() && geometry_.groups == input_channels() &&
         geometry_.groups == output_channels() && blocked_weight();
}

Tensor ConvolutionContext::depthwise_weight() const {
  const auto make = [&] {
    const Ints& sizes = weight_sizes();
    const Tensor weight = stored_forms().get("depthwise", {at::kFloat, {sizes[2], sizes[3], sizes[0]}}, [&] {
      const Tensor windows = plain_weight().squeeze(1).permute({1, 2, 0});
      return empty_weight(windows.sizes(), windows.options()).copy_(windows);
    });
    return std::make_unique<const DepthwiseWeight>(weight);
  };
  return weight().derived<DepthwiseWeight>(make).weight;
}

}  // namespace ipex::runtime
