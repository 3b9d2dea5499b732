// Images of few channels, in any layout, as a network's first convolution has them: see kernels/few_channels.h.
#include "isa/isa.h"
#include "kernels/kernels.h"
#include "memory/weight_memory.h"
#include "ops/convolution/convolution.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

class FewChannels {
 public:
  // `weight` gives one of these sizes. It is asked where `stored` does not have the kernel's form.
  FewChannels(c10::function_ref<at::Tensor()> weight, at::IntArrayRef sizes, const StoredForms& stored) {
    const int64_t lanes = kernels().few_channels.width, vectors = at::divup(sizes[0], lanes);
    const at::DimVector form{vectors, sizes[1], sizes[2], sizes[3], lanes};
    weight_ = stored.get("few channels", {at::kFloat, {form.begin(), form.end()}}, [&] {
      at::DimVector padded{vectors * lanes, sizes[1], sizes[2], sizes[3]};
      const at::Tensor whole = at::zeros(padded, at::kFloat), packed = empty_weight(form, at::kFloat);
      whole.narrow(0, 0, sizes[0]).copy_(weight());
      packed.copy_(whole.unflatten(0, {vectors, lanes}).permute({0, 2, 3, 4, 1}));
      return packed;
    });
  }

  // The image has any strides, the result is dense and channels-last.
  void convolve(const at::Tensor& image, const ConvolutionGeometry& geometry, const ElementwiseSteps& steps,
                const at::Tensor& result) const {
    constexpr int64_t products_worth_waking = 1 << 18, results_that_no_cache_holds = 8 << 20;
    const auto axis = [&](size_t i) {
      const auto dimension = static_cast<int64_t>(2 + i);
      return ConvolutionAxis{.image = image.size(dimension),
                             .image_step = image.stride(dimension),
                             .window = weight_.size(dimension),
                             .stride = geometry.stride[i],
                             .dilation = geometry.dilation[i],
                             .padding = geometry.begin[i],
                             .result = result.size(dimension)};
    };
    const FewChannelsWork all{.image = image.const_data_ptr<float>(),
                              .channels = image.size(1),
                              .channel_step = image.stride(1),
                              .down = axis(0),
                              .across = axis(1),
                              .weights = weight_.const_data_ptr<float>(),
                              .steps = steps,
                              .result = result.mutable_data_ptr<float>(),
                              .first_pixel = 0,
                              .is_large = result.numel() > results_that_no_cache_holds};
    const int64_t height = all.down.result, pixels = height * all.across.result, rows = image.size(0) * height;
    const int64_t products = result.numel() * all.channels * all.down.window * all.across.window;
    parallel_for(rows, grain_of(rows, products, products_worth_waking), [&](int64_t first, int64_t last) {
      while (first < last) {
        const int64_t at = first / height, begin = first % height, end = std::min(height, begin + last - first);
        FewChannelsWork work = all;
        work.image += at * image.stride(0);
        work.first_pixel = at * pixels;
        work.result += work.first_pixel * steps.columns;
        kernels().few_channels.convolve(work, begin, end);
        first += end - begin;
      }
    });
  }

 private:
  at::Tensor weight_;  // [vectors of output channels, input channels, window's rows, window's columns, lanes]
};

// The pass read_images_as_they_lie has the same rule.
bool gains_by_few_channels(const ConvolutionGeometry& geometry, at::IntArrayRef weight) {
  // With more to multiply for each number of the image, or more to write, oneDNN is as fast.
  constexpr int64_t most_channels = 4, widest_window = 7, widest_stride = 4, most_products = 25, least_results = 8,
                    most_results_of_dense_windows = 32;
  const auto fits = [&](size_t i) { return weight[2 + i] <= widest_window && geometry.stride[i] <= widest_stride; };
  const int64_t results = weight[0], channels = weight[1], products = weight[2] * weight[3];
  if (geometry.spatial_rank != 2 || geometry.groups != 1 || geometry.transposed || !fits(0) || !fits(1)) return false;
  if (channels > most_channels || products == 1 || results < least_results) return false;
  const bool is_dense = geometry.stride[0] * geometry.stride[1] == 1;
  return channels == 1 || (products <= most_products && (!is_dense || results <= most_results_of_dense_windows));
}

}  // namespace

const ConvolutionContext::Algorithm ConvolutionContext::few_channels{
    "few_channels",
    [](const Call& call) {
      const ConvolutionContext& layer = call.layer;
      if (const char* reason = layer.reason_against_own_kernels()) return reason;
      if (call.may_round && isa::is_in_use(isa::Level::AMX)) return "oneDNN may round, on tiles";
      const bool gains = gains_by_few_channels(layer.geometry_, layer.weight_sizes());
      return gains ? nullptr : "it has many channels, or large windows";
    },
    [](Call& call) {
      const ConvolutionContext& layer = call.layer;
      const auto& kernel = layer.weight().derived<FewChannels>([&] {
        const auto plain = [&] { return layer.plain_weight(); };
        return std::make_unique<const FewChannels>(plain, layer.weight_sizes(), layer.stored_forms());
      });
      return layer.compute(call, [&](const ElementwiseSteps& steps, const at::Tensor& result) {
        kernel.convolve(call.image, layer.geometry_, steps, result);
        return true;
      });
    }};

}  // namespace ipex::runtime
