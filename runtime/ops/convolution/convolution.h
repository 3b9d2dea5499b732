// A convolution's context: what its own op runs, and chains of convolutions layer by layer (convolution_chain.cpp).
#pragma once

#include <memory>
#include <vector>

#include "ops/convolution/convolution_geometry.h"
#include "ops/convolution/convolution_strips.h"
#include "ops/convolution/winograd.h"
#include "ops/product/bf16_weight.h"
#include "packed/interleave_channels.h"
#include "packed/kernel_steps.h"
#include "packed/memory_format.h"
#include "packed/packed_op.h"

namespace ipex::runtime {

class ConvolutionContext final : public PackedOp {
 public:
  ConvolutionContext(const Spec& spec, ConvolutionGeometry geometry);
  // The convolution `other` with another padding.
  ConvolutionContext(const ConvolutionContext& other, ConvolutionGeometry geometry);

  State state() const;
  static c10::intrusive_ptr<ConvolutionContext> load(const State& state);

  // Throws where a layer of the op `name` takes other channels than the one before it makes.
  static void check_that_layers_fit(const char* name,
                                    const std::vector<c10::intrusive_ptr<ConvolutionContext>>& layers);

  int64_t output_channels() const { return geometry_.output_channels(weight_sizes()); }
  int64_t input_channels() const { return geometry_.input_channels(weight_sizes()); }

  // run() of the image after constant_pad_nd with these widths, and zeros.
  at::Tensor run_padded(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout,
                        at::IntArrayRef widths) const;

  // run() of image * gate, a number for each channel of each image. Single pixels are multiplied as a product reads them, and
  // there is no other image.
  at::Tensor run_gated(const at::Tensor& image, const at::Tensor& gate, const std::vector<at::Tensor>& operands,
                       bool eager_layout) const;

  // Whether run() takes such an input, and finds no reason to leave it to aten.
  bool accepts(const at::Tensor& input, bool eager_layout) const;
  // Where windows are single pixels that move by one, the weight as a kernel of our own reads it. Null where none does.
  const Panels* panels_for_pixels() const;
  // Whether such a kernel computes all of the layer, whatever the call, and that for a few pixels.
  bool multiplies_pixels() const { return panels_for_pixels() && steps_.applies_all(); }
  void multiply_pixels(const InputRows& pixels, float* result) const;
  // Whether each channel is convolved by itself, as kernels/depthwise.h does it, and that weight.
  bool is_depthwise() const;
  at::Tensor depthwise_weight() const;
  // How many rows of the image the windows of two neighbouring rows of the result have in common.
  int64_t shared_rows() const { return std::max<int64_t>(0, window(0) - geometry_.stride[0]); }
  // The same as work on an image, without layers around it. `weight` is depthwise_weight(), which has to live as long.
  ConvolutionStrips strips(const at::Tensor& image, const at::Tensor& weight, const ElementwiseSteps& steps,
                           const at::Tensor& result) const;
  bool is_brgemm_at_fault(const at::Tensor& input) const {
    return geometry_.is_brgemm_at_fault(batched(input).sizes(), weight_sizes());
  }
  // The sizes of the result for a batched source.
  std::vector<int64_t> kernel_result_sizes(at::IntArrayRef source) const {
    return geometry_.result_sizes(source, weight_sizes());
  }

  // All post-ops of a call as a kernel of our own takes them.
  struct KernelCall {
    FusedPostOps fused;
    KernelSteps::Room room;
    ElementwiseSteps steps;
  };
  // Of the input only sizes and layout count. False where kernels can't take all.
  bool begin(KernelCall& call, const at::Tensor& input, const std::vector<at::Tensor>& operands,
             bool eager_layout) const;

 private:
  using Ints = std::vector<int64_t>;

  static int64_t output_channels(const at::Tensor& weight, const ConvolutionGeometry& geometry);
  size_t kernel_rank() const { return geometry_.stride.size(); }
  int64_t window(size_t i) const { return geometry_.window(i, weight_sizes()); }
  static bool is_all(const Ints& values, int64_t wanted);

  // What PackedOp asks.
  int64_t batch_rank() const override { return geometry_.spatial_rank + 2; }
  int64_t channel_dimension(int64_t rank) const override { return rank - geometry_.spatial_rank - 1; }
  void check_input(const at::Tensor& input) const override;
  at::Tensor reference(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const override;
  at::Tensor divided(const at::Tensor& weight, const at::Tensor& divisor) const override;
  c10::intrusive_ptr<PackedOp> with(const Spec& spec) const override {
    return c10::make_intrusive<ConvolutionContext>(spec, geometry_);
  }
  const char* own_reason_for_aten(const at::Tensor& input, bool eager_layout) const override;
  at::Tensor kernel_view(const at::Tensor& tensor) const override {
    return channels_last_result(batched(tensor), channels_last_);
  }
  at::Tensor kernel_source(const at::Tensor& input) const override;
  at::Tensor allocate(const at::Tensor& source) const override;
  at::MemoryFormat kernel_format() const override { return channels_last_; }
  at::Tensor user_view(const at::Tensor& result, const at::Tensor& input, bool eager_layout) const override;
  at::DimVector result_sizes(const at::Tensor& input) const override;
  bool laid_out_as_result(const at::Tensor& tensor, const at::Tensor& input, bool eager_layout) const override;

  // In aten. What is_brgemm_at_fault says of oneDNN's kernels is true of aten's as well: so the same convolution with its
  // padding written out, and of a single window where there is room for no other. In float32: kernels for 16 bits pair
  // written-out zeros with what lies behind them.
  at::Tensor out_of_the_corner(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const;
  // The same of a float32 image whose windows are wider than it: without the taps that meet padding alone, brgemm may be
  // right. The live taps of each dimension, or none where it is not.
  std::vector<LiveTaps> taps_to_keep(const at::Tensor& input) const;
  std::pair<ConvolutionGeometry, Ints> trimmed(const std::vector<LiveTaps>& taps) const;  // and the weight's sizes
  c10::intrusive_ptr<ConvolutionContext> with_taps(const std::vector<LiveTaps>& taps) const;
  Ints no_padding() const { return Ints(kernel_rank(), 0); }
  at::Tensor padded(const at::Tensor& input) const;
  // The ops that a model would call: autocast knows them.
  // The same, transposed and without padding, in kernels that are slow and do not mind how far apart windows lie.
  at::Tensor spread_in_aten(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) const;
  at::Tensor anchor_in_aten(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, const Ints& padding,
                            const Ints& stride) const;

  // Layouts.
  at::Tensor batched(const at::Tensor& image) const { return as_batched_image(image, geometry_.spatial_rank); }
  // aten keeps channels-last when either the input or the weight has it, but not in 1-d.
  at::MemoryFormat eager_format(const at::Tensor& input) const;
  // The same after the post-ops: aten's elementwise ops take a result for contiguous that is both, as one with a single
  // channel or pixel is.
  at::MemoryFormat format_of_result(const at::Tensor& result, const at::Tensor& input) const;

  // Kernels of our own.
  at::Tensor run_own_kernel(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool may_accumulate,
                            bool eager_layout, size_t& done) const override;
  // What they want of any convolution. With AMX, oneDNN is faster where it may round.
  bool is_for_own_kernels() const;
  // .. and windows of so many pixels in both directions.
  bool has_windows_of(int64_t side) const;
  bool moves_by_one() const { return is_all(geometry_.stride, 1); }
  // In BF32 without AMX, where oneDNN rounds nothing by itself: image and a copy of the weight in bfloat16, for oneDNN.
  bool rounds_windows(const at::Tensor& input) const;
  at::Tensor run_rounded(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout,
                         size_t& done) const;
  // Windows of a single pixel: a product of pixels and weight.
  at::Tensor run_product(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool may_accumulate,
                         bool eager_layout, size_t& done, const at::Tensor& gate = {}) const;
  bool reads_gated(const at::Tensor& image, bool eager_layout) const;
  bool is_product(const at::Tensor& input) const;
  // Windows of a sequence. None are used where that does not gain.
  WeightTiles tiles_for_runs(const at::Tensor& input) const;
  at::Tensor run_runs(const WeightTiles& tiles, const at::Tensor& input, const std::vector<at::Tensor>& operands,
                      bool eager_layout, size_t& done) const;
  bool gains_by_depthwise_kernel() const;
  // Whether it would be copied for oneDNN's, which costs more than they save.
  bool reads_piece(const at::Tensor& input) const;
  at::Tensor run_depthwise(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout,
                           size_t& done) const;
  // Of an image of few channels, whatever its layout.
  bool gains_by_few_channels() const;
  at::Tensor run_few_channels(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout,
                              size_t& done) const;
  const Panels* panels_for_product() const;
  // What kernel_view gives, but for pieces of channels: they stay where they lie.
  at::Tensor pixels_of(const at::Tensor& input) const;
  at::Tensor pixels_that_windows_see(const at::Tensor& image) const;
  // Whether the product is one of bfloat16 numbers (ops/product/bf16_weight.h).
  bool rounds(int64_t pixels) const;
  Facts::Values copies() const override;
  // With less to multiply for a pixel, or more pixels than the caches hold, memory is what counts, and oneDNN knows more
  // ways through it. With many channels tiles gain all the same.
  bool is_worth_multiplying(int64_t pixels) const;
  // Whether some images of the right size may be convolved so.
  bool is_winograds() const { return has_windows_of(3) && moves_by_one() && group_size().is_worth_it(); }
  WinogradSize group_size() const {
    return {geometry_.groups, input_channels() / geometry_.groups, output_channels() / geometry_.groups};
  }

  // oneDNN's primitives.
  bool has_a_group_per_channel() const;
  // How many channels of zeros each group gets, so that kernels for 16 bits read no other pixel (onednn/row_width.h).
  int64_t extra_channels() const;
  // Whether kernels that multiply in tiles read nothing but a window's pixels, with so many channels in a group.
  bool are_whole_tiles(int64_t channels) const;
  // Of images and of weights: `x` with those channels in each group along dimension `d`.
  at::Tensor with_extra_channels(const at::Tensor& x, int64_t d, int64_t groups) const;
  // Its order is [groups,] output channels, input channels, kernel.
  dnnl::memory::dims weight_dims() const;
  dnnl::memory::desc plain_weight_desc(const at::Tensor& weight) const;
  dnnl::memory::desc any_weight_desc() const override {
    return {weight_dims(), data_type(), dnnl::memory::format_tag::any};
  }
  std::unique_ptr<const BlockedWeight> pack(at::Tensor& weight) const override;
  // What the kernels want for an image of ordinary size: the real sizes are not known when packing.
  dnnl::memory::desc preferred_weight_desc(const at::Tensor& weight) const;
  dnnl::primitive_desc primitive_desc(const Ints& source_sizes, const dnnl::memory::desc& weight_desc,
                                      const FusedPostOps& fused, FP32MathMode mode) const override {
    return convolution_desc(source_sizes, weight_desc, fused, mode, data_type());
  }
  // With an image and a weight of type `factors`.
  dnnl::primitive_desc convolution_desc(const Ints& source_sizes, const dnnl::memory::desc& weight_desc,
                                        const FusedPostOps& fused, FP32MathMode mode,
                                        dnnl::memory::data_type factors) const;

  ConvolutionGeometry geometry_;
  at::MemoryFormat channels_last_;
  KernelSteps steps_;
  // By what padding is added at a call.
  mutable LruCache<PrimitiveKey, c10::intrusive_ptr<ConvolutionContext>> with_padding_{8};
  // By which taps are kept.
  mutable LruCache<PrimitiveKey, c10::intrusive_ptr<ConvolutionContext>> with_taps_{8};
};

}  // namespace ipex::runtime
