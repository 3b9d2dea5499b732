// A convolution's context: what its own op runs, and chains of convolutions layer by layer (convolution_chain.cpp).
#pragma once

#include <c10/util/FunctionRef.h>
#include <c10/util/accumulate.h>

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/tile_product.h"
#include "ops/convolution/convolution_geometry.h"
#include "ops/convolution/convolution_strips.h"
#include "ops/convolution/winograd.h"
#include "ops/product/product.h"
#include "packed/algorithm.h"
#include "packed/interleave_channels.h"
#include "packed/kernel_steps.h"
#include "packed/memory_format.h"
#include "packed/packed_op.h"

namespace ipex::runtime {

// oneDNN's convolution of these, or deconvolution, on its first kernel that is not wrong. Empty where there is none.
struct ConvolutionDescs {
  dnnl::memory::desc source, weight, bias, result;
};
dnnl::primitive_desc right_convolution(const ConvolutionDescs& descs, const ConvolutionGeometry& geometry,
                                       const dnnl::primitive_attr& attr,
                                       c10::function_ref<bool(std::string_view)> is_wrong);

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

  // The same of image * gate, a number for each channel of each image.
  at::Tensor run_gated(const at::Tensor& image, const at::Tensor& gate, const std::vector<at::Tensor>& operands,
                       bool eager_layout, at::IntArrayRef widths) const;

  // Whether run() takes such an input, and finds no reason to leave it to aten.
  bool accepts(const at::Tensor& input, bool eager_layout) const;
  // Where windows are single pixels that move by one, the weight as a kernel of our own reads it. Null where none does.
  const Panels* panels_for_pixels() const { return moves_by_one() && !reason_against_pixels() ? panels() : nullptr; }
  // Whether such a kernel computes all of the layer, whatever the call, and that for a few pixels.
  bool multiplies_pixels() const { return panels_for_pixels() && steps_.applies_all(); }
  void multiply_pixels(const InputRows& pixels, float* result) const;
  // Whether each channel is convolved by itself, as kernels/depthwise.h does it, and that weight.
  bool is_depthwise() const;
  at::Tensor depthwise_weight() const;
  // How many rows of the image the windows of two neighbouring rows of the result have in common.
  int64_t shared_rows() const { return std::max<int64_t>(0, window(0) - geometry_.stride[0]); }
  // The same as work on an image that lies in pixels. `weight` is depthwise_weight(), which has to live as long.
  ConvolutionStrips strips(const at::Tensor& image, const at::Tensor& weight, const ElementwiseSteps& steps,
                           const at::Tensor& result) const {
    return depthwise_strips(image, weight, geometry_.stride, geometry_.dilation, geometry_.begin, steps, result);
  }
  bool is_brgemm_at_fault(const at::Tensor& input) const {
    return geometry_.is_brgemm_at_fault(geometry_.batched_sizes(input), weight_sizes());
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

  // What PackedOp asks.
  int64_t batch_rank() const override { return geometry_.batch_rank(); }
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
  at::DimVector result_sizes(const at::Tensor& input) const override {
    return geometry_.result_sizes(input, weight_sizes());
  }
  bool laid_out_as_result(const at::Tensor& tensor, const at::Tensor& input, bool eager_layout) const override;

  // In aten. What is_brgemm_at_fault says of oneDNN's kernels is true of aten's as well: so the same convolution with its
  // padding written out, and of a single window where there is room for no other. In float32: kernels for 16 bits pair
  // written-out zeros with what lies behind them.
  at::Tensor out_of_the_corner(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const;
  Ints no_padding() const { return Ints(kernel_rank(), 0); }
  at::Tensor padded(const at::Tensor& input) const;
  // Transposed and without padding, in kernels that are slow and do not mind how far apart windows lie.
  at::Tensor spread_in_aten(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) const;
  // The ops that a model would call: autocast knows them.
  at::Tensor anchor_in_aten(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, const Ints& padding,
                            const Ints& stride) const;

  // Layouts.
  at::Tensor batched(const at::Tensor& image) const { return geometry_.batched(image); }
  // aten keeps channels-last when either the input or the weight has it, but not in 1-d.
  at::MemoryFormat eager_format(const at::Tensor& input) const;
  // The same after the post-ops: aten's elementwise ops take a result for contiguous that is both, as one with a single
  // channel or pixel is.
  at::MemoryFormat format_of_result(const at::Tensor& result, const at::Tensor& input) const;

  // A call, and what all algorithms ask of it.
  struct Call {
    const ConvolutionContext& layer;
    const at::Tensor& input;
    const std::vector<at::Tensor>& operands;
    bool may_accumulate, eager_layout;
    at::Tensor gate = {};  // where the image is multiplied by one
    at::Tensor image = layer.batched(input);
    Ints result_sizes = layer.kernel_result_sizes(image.sizes());
    int64_t pixels = c10::multiply_integers(result_sizes) / layer.output_channels();  // of all results
    bool may_round = math_mode_now(layer.math_mode()) == FP32MathMode::BF32;
    size_t done = 0;  // how many post-ops were applied
    // The image channels-last. Pieces of channels stay where they lie.
    at::Tensor image_in_pixels() const;
  };
  // Each in the file of its name.
  using Algorithm = runtime::Algorithm<Call>;
  static const Algorithm trimmed_taps, pixel_product, sequence_product, depthwise, few_channels, winograd,
      rounded_windows;
  static std::array<const Algorithm*, 8> algorithms();  // in the order in which they are asked
  at::Tensor run_own_kernel(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool may_accumulate,
                            bool eager_layout, size_t& done) const override;
  // The result that `kernel` writes, with the post-ops that it has as steps. Undefined where it gives false.
  at::Tensor compute(Call& call, c10::function_ref<bool(const ElementwiseSteps&, const at::Tensor&)> kernel,
                     bool may_accumulate = false) const;

  // What they ask of the layer. The reasons are null where there are none.
  const char* reason_against_own_kernels() const;
  const char* reason_against_pixels() const;  // windows of a single pixel
  const Panels* panels() const;               // the weight, where such a kernel reads its layout
  bool has_windows_of(int64_t side) const { return weight_sizes()[2] == side && weight_sizes()[3] == side; }
  bool moves_by_one() const { return all_are(geometry_.stride, 1); }
  // The live taps of each dimension, or none where oneDNN is at fault with these too, or with no taps.
  std::vector<LiveTaps> taps_to_keep(const at::Tensor& input) const;
  ConvolutionGeometry trimmed(const std::vector<LiveTaps>& taps) const;
  c10::intrusive_ptr<ConvolutionContext> with_taps(const std::vector<LiveTaps>& taps) const;
  // Whether the product is one of bfloat16 numbers (ops/product/bf16_weight.h).
  bool rounds_pixels(const Call& call) const;
  WeightTiles tiles_for_runs(const Call& call) const;
  WinogradSize group_size() const;
  std::optional<Winograd::Form> winograd_form(const Call& call) const;
  at::Tensor run_rounded(Call& call) const;
  Facts::Values copies() const override;

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
