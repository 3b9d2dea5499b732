// Convolutions of 8-bit numbers: 1-, 2- and 3-d, and transposed.
//
//   ipex::quantized_convolution_prepack(weight, weight_scales, bias, stride, padding, dilation, groups, post_ops, input,
//                                       result, operands, transposed, output_padding) -> QuantizedConvolutionContext
//   ipex::quantized_convolution_run(input, context, operands, eager_layout, widths=[]) -> Tensor
//
// `padding` is the beginnings followed by the ends. `input`, `result` and `operands` are scales and zero points, as
// affine.h has them. Computes on channels-last images; an input in another layout is converted first. A 1-d convolution is
// a 2-d one on an image one pixel high. `widths` is padding besides, as F.pad has it, for padding that follows from the size of
// the image.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>

#include "memory/result_memory.h"
#include "ops/convolution/convolution.h"
#include "ops/quantized/quantized_op.h"
#include "packed/damaged.h"
#include "packed/door.h"
#include "packed/memory_format.h"

namespace ipex::runtime {
namespace {

using at::Tensor;
using dnnl::memory;
using Ints = std::vector<int64_t>;

constexpr const char* op_name = "ipex::quantized_convolution_run";

int64_t output_channels_of(const QuantizedSpec& spec, const ConvolutionGeometry& geometry) {
  if (!spec.weight.defined() || spec.weight.dim() < 2) return 0;  // refused by QuantizedOp
  return geometry.output_channels(spec.weight.sizes());
}

class QuantizedConvolutionContext final : public QuantizedOp {
 public:
  QuantizedConvolutionContext(const QuantizedSpec& spec, ConvolutionGeometry geometry)
      : QuantizedOp(spec, static_cast<int64_t>(geometry.stride.size()) + 2,
                    output_channels_of(spec, geometry.checked(op_name))),
        geometry_(std::move(geometry)),
        channels_last_(channels_last_of(geometry_.spatial_rank)) {
    TORCH_CHECK(plain_weight().size(0) % geometry_.groups == 0, op_name,
                ": expected channels divisible by groups, got ", plain_weight().size(0), " and ", geometry_.groups,
                damaged);
    if (has_windows()) windows_.emplace(geometry_, plain_weight().sizes());
    pack();
  }
  // With other padding.
  QuantizedConvolutionContext(const QuantizedConvolutionContext& other, ConvolutionGeometry geometry)
      : QuantizedOp(other), geometry_(std::move(geometry)), channels_last_(other.channels_last_) {
    if (has_windows()) windows_.emplace(geometry_, plain_weight().sizes());
  }

  Tensor run_padded(const Tensor& input, const std::vector<Tensor>& operands, bool eager_layout,
                    const Ints& widths) const {
    if (std::all_of(widths.begin(), widths.end(), [](int64_t width) { return width == 0; })) {
      return run(input, operands, eager_layout);
    }
    if (!geometry_.can_pad(widths)) {
      const Tensor padded = at::constant_pad_nd(input, widths, input_zero_point());
      return run(padded, operands, eager_layout);
    }
    const auto padded = with_padding_.get(PrimitiveKey(widths), [&] {
      return c10::make_intrusive<QuantizedConvolutionContext>(*this, geometry_.padded(widths));
    });
    return (*padded)->run(input, operands, eager_layout);
  }

  static c10::intrusive_ptr<QuantizedConvolutionContext> load(const State& state) {
    const StateReader reader(op_name, state);
    return c10::make_intrusive<QuantizedConvolutionContext>(
        read(op_name, state), ConvolutionGeometry::load(op_name, reader, /*names_rank=*/std::get<0>(state) >= 2));
  }

 private:
  int64_t version() const override { return geometry_.spatial_rank == 2 && !geometry_.transposed ? 1 : 2; }
  Integers integers() const override {
    Integers all = geometry_.integers();
    if (version() == 1) {
      for (const char* later : {"spatial_rank", "output_padding", "transposed"}) all.erase(later);
    }
    return all;
  }
  int64_t input_channels() const { return geometry_.input_channels(plain_weight().sizes()); }
  Tensor batched(const Tensor& image) const { return geometry_.batched(image); }

  void check_input(const Tensor& input) const override {
    geometry_.check_image(op_name, input, plain_weight().sizes());
  }
  std::unique_ptr<const PackedOp> float_op(const Spec& spec) const override {
    return std::make_unique<const ConvolutionContext>(spec, geometry_);
  }
  Tensor spread_over_weight(const Tensor& per_channel) const override {
    if (!geometry_.transposed) return QuantizedOp::spread_over_weight(per_channel);
    // The output channels of a group are dimension 1, and the groups follow one another in dimension 0.
    const Tensor& weight = plain_weight();
    Ints shape(weight.dim(), 1);
    shape[0] = weight.size(0);
    shape[1] = weight.size(1);
    const int64_t inputs_of_a_group = weight.size(0) / geometry_.groups;
    return per_channel.view({geometry_.groups, -1}).repeat_interleave(inputs_of_a_group, 0).view(shape);
  }
  Tensor kernel_view(const Tensor& tensor) const override { return contiguous_result(batched(tensor), channels_last_); }
  memory::dims kernel_sizes(const Tensor& source) const override { return source.sizes().vec(); }
  memory::dims kernel_result_sizes(const memory::dims& source) const override {
    return geometry_.result_sizes(source, plain_weight().sizes());
  }
  at::MemoryFormat kernel_format() const override { return channels_last_; }
  Tensor allocate(const Tensor& source, at::ScalarType dtype) const override {
    return empty_result(kernel_result_sizes(kernel_sizes(source)),
                        at::TensorOptions(dtype).memory_format(channels_last_));
  }
  Tensor user_view(const Tensor& result, const Tensor& input, bool eager_layout) const override {
    const bool is_both = !post_ops().empty() && result.is_contiguous();
    const at::MemoryFormat format = is_both ? at::MemoryFormat::Contiguous : eager_format(input);
    return as_original_image(eager_layout ? with_format(result, format) : result, input, geometry_.spatial_rank);
  }
  at::DimVector result_sizes(const Tensor& input) const override {
    return geometry_.result_sizes(input, plain_weight().sizes());
  }
  bool laid_out_as_result(const Tensor& tensor, const Tensor& input, bool eager_layout) const override {
    return batched(tensor).is_contiguous(eager_layout ? eager_format(input) : channels_last_);
  }
  at::MemoryFormat eager_format(const Tensor& input) const {
    if (geometry_.spatial_rank == 1) return at::MemoryFormat::Contiguous;
    const bool is_last = plain_weight().suggest_memory_format() == channels_last_ ||
                         batched(input).suggest_memory_format() == channels_last_;
    return is_last ? channels_last_ : at::MemoryFormat::Contiguous;
  }
  bool multiplies_rows() const override {
    const bool has_one_tap = c10::multiply_integers(plain_weight().sizes().slice(2)) == 1;
    return has_one_tap && geometry_.spatial_rank < 3 && geometry_.groups == 1 && !geometry_.transposed &&
           all_are(geometry_.stride, 1) && all_are(geometry_.begin, 0) && all_are(geometry_.end, 0);
  }
  // Windows that tiles may multiply. oneDNN reads every second pixel where it lies, and is faster than a copy is.
  bool has_windows() const {
    const bool has_one_tap = c10::multiply_integers(plain_weight().sizes().slice(2)) == 1;
    return geometry_.spatial_rank < 3 && geometry_.groups == 1 && !geometry_.transposed && !has_one_tap;
  }
  const WindowRows* windows() const override { return windows_ ? &*windows_ : nullptr; }
  int64_t channel_dimension(int64_t rank) const override { return rank - geometry_.spatial_rank - 1; }
  int64_t kernel_channel_dimension(int64_t) const override { return 1; }
  const char* own_reason_for_floats(const Tensor& input, bool eager_layout) const override {
    const bool keeps_layout = eager_layout && eager_format(input) != at::MemoryFormat::Contiguous;
    if (const char* reason = geometry_.reason_for_aten(keeps_layout)) return reason;
    // Of a volume that is less deep than its padding, int8 brgemm multiplies the wrong slices (oneDNN 3.7.2; found by fuzzing).
    if (geometry_.spatial_rank == 3 && std::max(geometry_.begin[0], geometry_.end[0]) >= batched(input).size(2)) {
      return "oneDNN's kernels are wrong for a volume that is less deep than its padding";
    }
    return geometry_.is_brgemm_at_fault(batched(input).sizes(), plain_weight().sizes())
               ? "in this corner oneDNN's kernels read what they should not"
               : nullptr;
  }
  memory::desc weight_desc(const Tensor& plain) const override {
    memory::dims sizes{output_channels() / geometry_.groups, input_channels() / geometry_.groups},
        strides = plain.strides().vec();
    sizes.insert(sizes.end(), plain.sizes().begin() + 2, plain.sizes().end());
    if (geometry_.transposed) std::swap(strides[0], strides[1]);
    if (geometry_.groups > 1) {
      sizes.insert(sizes.begin(), geometry_.groups);
      strides.insert(strides.begin(), plain.stride(0) * (plain.size(0) / geometry_.groups));
    }
    return {sizes, memory::data_type::s8, strides};
  }
  int weight_scales_mask() const override { return geometry_.groups > 1 ? 3 : 1; }
  memory::dims ordinary_input_sizes() const override {
    memory::dims sizes{1, input_channels()};
    for (size_t i = 0; i < geometry_.stride.size(); ++i) {
      const int64_t ordinary = geometry_.spatial_rank == 3 ? 14 : geometry_.spatial_rank == 2 ? 28 : i == 0 ? 1 : 128;
      sizes.push_back(std::max(ordinary, geometry_.window(i, plain_weight().sizes())));
    }
    return sizes;
  }
  memory::desc result_desc(const memory::dims& sizes, memory::data_type type) const override {
    return {sizes, type, sizes.size() == 5 ? memory::format_tag::ndhwc : memory::format_tag::nhwc};
  }
  dnnl::primitive_desc primitive_desc(const memory::dims& source_sizes, const memory::desc& weight,
                                      memory::data_type result, const dnnl::primitive_attr& attr) const override {
    const memory::desc source = result_desc(source_sizes, memory::data_type::u8),
                       made = result_desc(kernel_result_sizes(source_sizes), result);
    const memory::desc bias_desc =
        bias().defined() ? memory::desc({output_channels()}, memory::data_type::f32, memory::format_tag::a)
                         : memory::desc();
    return right_convolution({source, weight, bias_desc, made}, geometry_, attr,
                             [this](std::string_view kernel) { return is_wrong(kernel); });
  }
  bool is_wrong(std::string_view kernel) const {
    const auto has = [&](const char* part) { return kernel.find(part) != std::string_view::npos; };
    // Of volumes, the one from before brgemm is wrong with post-ops and 8-bit results (oneDNN 3.7.2; found by fuzzing).
    return (pads_holes() && has("amx")) || (geometry_.spatial_rank == 3 && has("gemm_s8u8s32"));
  }
  // Whether padding meets windows with holes. The kernels for AMX then write what the padding adds, where zero is not 0,
  // beyond the memory that they ask for.
  bool pads_holes() const {
    const auto any_above = [](const Ints& numbers, int64_t least) {
      return std::any_of(numbers.begin(), numbers.end(), [&](int64_t number) { return number > least; });
    };
    return any_above(geometry_.dilation, 1) && (any_above(geometry_.begin, 0) || any_above(geometry_.end, 0));
  }

  ConvolutionGeometry geometry_;
  at::MemoryFormat channels_last_;
  std::optional<WindowRows> windows_;
  // By what padding is added at a call.
  mutable LruCache<PrimitiveKey, c10::intrusive_ptr<QuantizedConvolutionContext>> with_padding_{8};
};

c10::intrusive_ptr<QuantizedConvolutionContext> prepack(
    const Tensor& weight, const Tensor& weight_scales, const std::optional<Tensor>& bias, Ints stride,
    const Ints& padding, Ints dilation, int64_t groups, std::vector<std::string> post_ops,
    const std::vector<double>& input, const std::vector<double>& result, const std::vector<double>& operands,
    bool transposed, Ints output_padding) {
  constexpr const char* where = "ipex::quantized_convolution_prepack";
  if (output_padding.empty()) output_padding = {0};
  ConvolutionGeometry geometry = ConvolutionGeometry::of(where, weight, std::move(stride), padding, std::move(dilation),
                                                         groups, transposed, std::move(output_padding));
  geometry.pads_image = false;
  return c10::make_intrusive<QuantizedConvolutionContext>(
      spec_of({where, op_name}, weight.dim() == 3 ? weight.unsqueeze(2) : weight, weight_scales, bias,
              std::move(post_ops), input, result, operands),
      std::move(geometry));
}

void quantized_convolution_run(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const Ints widths = torch::jit::pop(*stack).toIntVector();
  const bool eager_layout = torch::jit::pop(*stack).toBool();
  const std::vector<Tensor> operands = take_tensors(torch::jit::pop(*stack));
  const auto context = torch::jit::pop(*stack).toCustomClass<QuantizedConvolutionContext>();
  torch::jit::push(*stack, context->run_padded(torch::jit::pop(*stack).toTensor(), operands, eager_layout, widths));
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<QuantizedConvolutionContext>(m, "QuantizedConvolutionContext");
  define(
      m,
      "quantized_convolution_prepack(Tensor weight, Tensor weight_scales, Tensor? bias, int[] stride, int[] padding, "
      "int[] dilation, int groups, str[] post_ops, float[] input, float[] result, float[] operands, "
      "bool transposed=False, int[] output_padding=[]) -> "
      "__torch__.torch.classes.ipex.QuantizedConvolutionContext",
      prepack);
  define(m,
         "quantized_convolution_run(Tensor input, __torch__.torch.classes.ipex.QuantizedConvolutionContext context, "
         "Tensor[] operands, bool eager_layout, int[] widths=[]) -> Tensor",
         OnStack{quantized_convolution_run});
}

}  // namespace
}  // namespace ipex::runtime
