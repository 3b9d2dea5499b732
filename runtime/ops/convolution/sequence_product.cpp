#include "ops/convolution/sequence_product.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "memory/result_memory.h"
#include "packed/copy_elements.h"

namespace ipex::runtime {
namespace {

// Steps of a result of which the first rows are left out.
class LaterSteps {
 public:
  LaterSteps(const ElementwiseSteps& steps, int64_t rows)
      : steps_(steps), each_(steps.first, steps.first + steps.count) {
    for (ElementwiseStep& step : each_) {
      if (step.operand && step.spread == OperandSpread::full) step.operand += rows * steps.columns;
    }
    steps_.first = each_.data();
  }
  const ElementwiseSteps& get() const { return steps_; }

 private:
  ElementwiseSteps steps_;
  std::vector<ElementwiseStep> each_;
};

// Whether the windows of all images are equally far apart.
bool are_in_step(int64_t images, int64_t length, int64_t windows, int64_t stride) {
  return images == 1 || length == windows * stride;
}

}  // namespace

bool sees_runs(const ConvolutionGeometry& geometry, at::IntArrayRef weight) {
  return geometry.spatial_rank == 1 && geometry.groups == 1 && !geometry.transposed && geometry.dilation[1] == 1 &&
         weight[3] > 1;
}

int64_t windows_at_once(const ConvolutionGeometry& geometry, at::IntArrayRef image, at::IntArrayRef weight) {
  const int64_t windows = geometry.result_sizes(image, weight)[3],
                length = image[3] + geometry.begin[1] + geometry.end[1];
  return are_in_step(image[0], length, windows, geometry.stride[1]) ? image[0] * windows : windows;
}

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
  for (int64_t i = 0; i < images; ++i) {
    multiply_rows(i * windows, windows, i * length, LaterSteps(steps, i * windows).get());
  }
}

}  // namespace ipex::runtime
