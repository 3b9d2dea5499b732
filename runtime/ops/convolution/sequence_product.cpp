// A convolution of a sequence as a product. Where a sequence lies channels-last, each of its windows is a run of memory, and
// the windows are rows that overlap:
//
//   a0 a1 a2 a3 a4 ..      three taps, every second place: rows (a0 a1 a2), (a2 a3 a4), ..
//
// So the kernels for linears convolve, and nothing is copied but a sequence that is padded. With AMX they are half as fast
// again as oneDNN's for convolutions, which know no tiles of floats; without it they are no faster.
#include "ops/convolution/convolution.h"
#include "ops/product/tile_product.h"
#include "packed/copy_elements.h"

namespace ipex::runtime {
namespace {

// Whether the windows of all images are equally far apart.
bool are_in_step(int64_t images, int64_t length, int64_t windows, int64_t stride) {
  return images == 1 || length == windows * stride;
}

// Whether windows are runs of more than one place.
bool sees_runs(const ConvolutionGeometry& geometry, at::IntArrayRef weight) {
  return geometry.spatial_rank == 1 && geometry.groups == 1 && !geometry.transposed && geometry.dilation[1] == 1 &&
         weight[3] > 1;
}

// The image, one row high, dense and channels-last, with zeros at its ends where the convolution pads it.
at::Tensor with_padding_written_out(const at::Tensor& image, const ConvolutionGeometry& geometry) {
  const int64_t begin = geometry.begin[1], end = geometry.end[1], images = image.size(0), channels = image.size(1),
                length = image.size(3);
  const auto format = at::MemoryFormat::ChannelsLast;
  if (begin + end == 0 && image.is_contiguous(format)) return image;
  const at::Tensor padded =
      empty_result({images, channels, 1, begin + length + end}, image.options().memory_format(format));
  auto* to = padded.mutable_data_ptr<float>();
  for (int64_t i = 0; i < images; ++i) {
    std::fill_n(to, begin * channels, 0.0F);
    to += (begin + length) * channels;
    std::fill_n(to, end * channels, 0.0F);
    to += end * channels;
  }
  copy_elements(padded.narrow(3, begin, length), image);
  return padded;
}

// result = steps(windows . panels). `image` is what with_padding_written_out gives, `result` dense and channels-last.
void multiply_windows(const at::Tensor& image, int64_t taps, int64_t stride, const Panels& panels,
                      const WeightTiles& tiles, const ElementwiseSteps& steps, const at::Tensor& result) {
  const int64_t channels = image.size(1), length = image.size(3), images = image.size(0), windows = result.size(3);
  const auto* from = image.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<float>();
  const auto multiply_rows = [&](int64_t first, int64_t count, int64_t first_place, const ElementwiseSteps& after) {
    const InputRows rows{from + first_place * channels, count, stride * channels};
    multiply(product_of(rows, taps * channels, panels, after, to + first * steps.columns, tiles));
  };
  if (are_in_step(images, length, windows, stride)) return multiply_rows(0, images * windows, 0, steps);
  KernelSteps::Room room;
  for (int64_t i = 0; i < images; ++i) {
    multiply_rows(i * windows, windows, i * length, later_steps(steps, i * windows * steps.columns, room));
  }
}

}  // namespace

const ConvolutionContext::Algorithm ConvolutionContext::sequence_product{
    "sequence_product",
    [](const Call& call) {
      const ConvolutionContext& layer = call.layer;
      if (!sees_runs(layer.geometry_, layer.weight_sizes())) return "its windows are no runs of memory";
      if (const char* reason = layer.reason_against_own_kernels()) return reason;
      if (call.may_round) return "oneDNN may round";
      return layer.tiles_for_runs(call).are_used ? nullptr : "there are no tiles that gain";
    },
    [](Call& call) {
      const ConvolutionContext& layer = call.layer;
      return layer.compute(call, [&](const ElementwiseSteps& steps, const at::Tensor& result) {
        multiply_windows(with_padding_written_out(call.image, layer.geometry_), layer.weight_sizes()[3],
                         layer.geometry_.stride[1], *layer.panels(), layer.tiles_for_runs(call), steps, result);
        return true;
      });
    }};

WeightTiles ConvolutionContext::tiles_for_runs(const Call& call) const {
  if (!panels()) return {};
  const int64_t images = call.image.size(0), windows = call.result_sizes[3];
  const int64_t length = call.image.size(3) + geometry_.begin[1] + geometry_.end[1];
  const int64_t at_once = are_in_step(images, length, windows, geometry_.stride[1]) ? images * windows : windows;
  return tiles_for(at_once, weight(), *panels(), weight_sizes()[3] * input_channels(), output_channels());
}

}  // namespace ipex::runtime
