// Windows of a single pixel: a product of pixels and weight, by the kernels for linears. An image that is multiplied by a gate,
// as squeeze and excitation does it, is multiplied as the product reads it, and there is no other image.
#include <ATen/autocast_mode.h>

#include "ops/convolution/convolution.h"
#include "ops/product/bf16_weight.h"
#include "ops/product/tile_product.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

using at::Tensor;

// With less to multiply for a pixel, or more pixels than the caches hold, memory is what counts, and oneDNN knows more
// ways through it. With many channels tiles gain all the same.
bool is_worth_multiplying(int64_t pixels, int64_t channels, int64_t results, bool moves_by_one) {
  constexpr int64_t least_channels = 24, most_pixels = 1024, least_channels_for_tiles = 128;
  const int64_t fewest = std::min(channels, results);
  if (moves_by_one && pixels <= most_pixels) {
    return pixels <= most_rows_of_a_small_product || fewest >= least_channels;
  }
  return fewest >= least_channels_for_tiles && gains_by_tiles(pixels, channels, results, parts_of_floats);
}

// Those that windows see, as rows of a product.
Tensor pixels_seen(Tensor image, const std::vector<int64_t>& stride) {
  const Tensor whole = image;
  for (size_t i = 0; i < stride.size(); ++i) {
    const auto dimension = static_cast<int64_t>(2 + i);
    if (stride[i] > 1) image = image.slice(dimension, 0, image.size(dimension), stride[i]);
  }
  return image.is_same(whole) ? image : contiguous_result(image, at::MemoryFormat::ChannelsLast);
}

// Whether it is a number for each channel of each image, one after the other.
bool is_gate_of(const Tensor& image, const Tensor& gate) {
  return image.dim() == 4 && gate.dim() == 4 && gate.size(0) == image.size(0) && gate.size(1) == image.size(1) &&
         gate.numel() == image.size(0) * image.size(1) && is_plain_cpu_float(gate) && !wants_gradient(gate) &&
         gate.is_contiguous() && image.numel() > 0 && is_plain_cpu_float(image) && !wants_gradient(image) &&
         image.is_contiguous(at::MemoryFormat::ChannelsLast) && !at::autocast::is_autocast_enabled(at::kCPU);
}

Tensor gated(const Tensor& image, const Tensor& gate) {
  if (!is_gate_of(image, gate)) return image * gate;
  constexpr int64_t elements_worth_waking = 32768;
  const int64_t channels = image.size(1), pixels = image.size(2) * image.size(3), rows = image.size(0) * pixels;
  const Tensor result = empty_result(image.sizes(), image.options().memory_format(at::MemoryFormat::ChannelsLast));
  const RowGates gates{gate.const_data_ptr<float>(), pixels};
  const float* from = image.const_data_ptr<float>();
  float* to = result.mutable_data_ptr<float>();
  parallel_for(rows, grain_of(rows, image.numel(), elements_worth_waking), [&](int64_t first, int64_t last) {
    gates.apply(from, channels, first, last, channels, to + first * channels);
  });
  return result;
}

}  // namespace

const ConvolutionContext::Algorithm ConvolutionContext::pixel_product{
    "pixel_product",
    [](const Call& call) {
      const ConvolutionContext& layer = call.layer;
      if (const char* reason = layer.reason_against_pixels()) return reason;
      const bool moves_by_one = layer.moves_by_one();
      const bool pays =
          is_worth_multiplying(call.pixels, layer.input_channels(), layer.output_channels(), moves_by_one) ||
          (moves_by_one && layer.rounds_pixels(call));
      return pays ? nullptr : "it has few channels, or many pixels";
    },
    [](Call& call) {
      const ConvolutionContext& layer = call.layer;
      const Tensor source = pixels_seen(call.image_in_pixels(), layer.geometry_.stride);
      const int64_t channels = layer.input_channels(), results = layer.output_channels();
      const InputRows rows{source.const_data_ptr<float>(), call.pixels, pixel_stride(source)};
      const Panels& panels = *layer.panels();
      const auto multiply_rows = [&](const ElementwiseSteps& steps, const Tensor& result) {
        float* to = result.data_ptr<float>();
        if (layer.rounds_pixels(call)) {
          const auto make = [&] {
            return std::make_unique<const Bf16Weight>([&] { return panels; }, results, channels, layer.stored_forms());
          };
          layer.weight().derived<Bf16Weight>(make).multiply(rows, steps, to);
          return true;
        }
        const WeightTiles tiles = tiles_for(call.pixels, layer.weight(), panels, channels, results);
        const RowsProduct product = product_of(rows, channels, panels, steps, to, tiles);
        if (call.gate.defined()) {
          multiply_gated(product, {call.gate.const_data_ptr<float>(), call.pixels / source.size(0)});
        } else {
          multiply(product);
        }
        return true;
      };
      return layer.compute(call, multiply_rows, call.may_accumulate);
    }};

const char* ConvolutionContext::reason_against_pixels() const {
  if (const char* reason = reason_against_own_kernels()) return reason;
  if (!has_windows_of(1)) return "its windows are larger than a pixel";
  if (geometry_.groups > 1) return "it has groups";
  if (!all_are(geometry_.begin, 0) || !all_are(geometry_.end, 0)) return "it is padded";
  return panels() ? nullptr : "no kernel of ours reads its packed weight";
}

bool ConvolutionContext::rounds_pixels(const Call& call) const {
  return call.pixels > most_few_rows && call.may_round &&
         Bf16Weight::is_worth_it(call.pixels, input_channels() * output_channels(), /*post_ops=*/0);
}

Tensor ConvolutionContext::run_gated(const Tensor& image, const Tensor& gate, const std::vector<Tensor>& operands,
                                     bool eager_layout, at::IntArrayRef widths) const {
  if (widths.empty() && !eager_layout && is_gate_of(image, gate) && accepts(image, eager_layout)) {
    check_operands(operands);
    Call call{*this, image, operands, may_write_over(operands), eager_layout, gate};
    if (!pixel_product.reason_against(call) && call.pixels > most_few_rows && !rounds_pixels(call)) {
      const Tensor result = run_first(name(), algorithms(), call);
      return apply_rest(result, operands, call.done);
    }
  }
  return run_padded(gated(image, gate), operands, eager_layout, widths);
}

void ConvolutionContext::multiply_pixels(const InputRows& pixels, float* result) const {
  FusedPostOps all;
  all.count = post_ops().size();
  KernelSteps::Room room;
  const ElementwiseSteps steps = steps_.of_call(all, bias(), output_channels(), room);
  multiply(product_of(pixels, input_channels(), *panels(), steps, result));
}

}  // namespace ipex::runtime
