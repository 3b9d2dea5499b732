// 2-d convolutions of 8-bit numbers.
//
//   ipex::quantized_convolution_prepack(weight, weight_scales, bias, stride, padding, dilation, groups, post_ops, input,
//                                       result, operands) -> QuantizedConvolutionContext
//   ipex::quantized_convolution_run(input, context, operands, eager_layout) -> Tensor
//
// `padding` is the beginnings followed by the ends. `input`, `result` and `operands` are scales and zero points, as
// affine.h has them. Computes on channels-last images; an input in another layout is converted first.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>

#include "memory/result_memory.h"
#include "ops/convolution/convolution.h"
#include "ops/quantized/quantized_op.h"
#include "packed/memory_format.h"

namespace ipex::runtime {
namespace {

using at::Tensor;
using dnnl::memory;
using Ints = std::vector<int64_t>;

constexpr const char* op_name = "ipex::quantized_convolution_run";
constexpr at::MemoryFormat channels_last = at::MemoryFormat::ChannelsLast;

ConvolutionGeometry geometry_of(Ints stride, Ints begin, Ints end, Ints dilation, int64_t groups) {
  return {.spatial_rank = 2,
          .stride = std::move(stride),
          .begin = std::move(begin),
          .end = std::move(end),
          .dilation = std::move(dilation),
          .output_padding = {0, 0},
          .groups = groups,
          .transposed = false};
}

class QuantizedConvolutionContext final : public QuantizedOp {
 public:
  QuantizedConvolutionContext(QuantizedSpec spec, ConvolutionGeometry geometry)
      : QuantizedOp(std::move(spec), /*weight_rank=*/4), geometry_(std::move(geometry)) {
    geometry_.checked(op_name);
    TORCH_CHECK(plain_weight().size(0) % geometry_.groups == 0, op_name,
                ": expected channels divisible by groups, got ", plain_weight().size(0), " and ", geometry_.groups,
                ". The model file is damaged: save it again.");
    pack();
  }

  static c10::intrusive_ptr<QuantizedConvolutionContext> load(const State& state) {
    const StateReader reader(op_name, state);
    return c10::make_intrusive<QuantizedConvolutionContext>(
        read(op_name, state), geometry_of(reader.integers("stride", 2, 1), reader.integers("padding_begin", 2, 0),
                                          reader.integers("padding_end", 2, 0), reader.integers("dilation", 2, 1),
                                          reader.integers("groups", 1, 1)[0]));
  }

 private:
  Integers integers() const override {
    return {{"stride", geometry_.stride},
            {"padding_begin", geometry_.begin},
            {"padding_end", geometry_.end},
            {"dilation", geometry_.dilation},
            {"groups", {geometry_.groups}}};
  }
  int64_t input_channels() const { return geometry_.input_channels(plain_weight().sizes()); }

  void check_input(const Tensor& input) const override {
    TORCH_CHECK(input.dim() == 4 && input.size(1) == input_channels(), op_name,
                ": expected input of 4 dimensions with ", input_channels(), " channels (weight is ",
                plain_weight().sizes(), "), got ", input.sizes(), ". Give a quantised model a batch of images.");
    const memory::dims sizes = kernel_result_sizes(input.sizes().vec());
    TORCH_CHECK(sizes[2] >= 0 && sizes[3] >= 0, op_name, ": expected an input at least as large as the kernel ",
                plain_weight().sizes(), " after padding ", geometry_.begin, ", got ", input.sizes(), ".");
  }
  std::unique_ptr<const PackedOp> float_op(const Spec& spec) const override {
    return std::make_unique<const ConvolutionContext>(spec, geometry_);
  }
  Tensor kernel_view(const Tensor& tensor) const override { return contiguous_result(tensor, channels_last); }
  memory::dims kernel_sizes(const Tensor& source) const override { return source.sizes().vec(); }
  memory::dims kernel_result_sizes(const memory::dims& source) const override {
    return geometry_.result_sizes(source, plain_weight().sizes());
  }
  at::MemoryFormat kernel_format() const override { return channels_last; }
  Tensor allocate(const Tensor& source, at::ScalarType dtype) const override {
    return empty_result(kernel_result_sizes(kernel_sizes(source)),
                        at::TensorOptions(dtype).memory_format(channels_last));
  }
  Tensor user_view(const Tensor& result, const Tensor& input, bool eager_layout) const override {
    const bool is_both = !post_ops().empty() && result.is_contiguous();
    const at::MemoryFormat format = is_both ? at::MemoryFormat::Contiguous : eager_format(input);
    return eager_layout ? with_format(result, format) : result;
  }
  at::DimVector result_sizes(const Tensor& input) const override {
    return at::DimVector(kernel_result_sizes(input.sizes().vec()));
  }
  bool laid_out_as_result(const Tensor& tensor, const Tensor& input, bool eager_layout) const override {
    return tensor.is_contiguous(eager_layout ? eager_format(input) : channels_last);
  }
  at::MemoryFormat eager_format(const Tensor& input) const {
    const bool is_last =
        plain_weight().suggest_memory_format() == channels_last || input.suggest_memory_format() == channels_last;
    return is_last ? channels_last : at::MemoryFormat::Contiguous;
  }
  int64_t channel_dimension(int64_t rank) const override { return rank - 3; }
  const char* own_reason_for_floats(const Tensor& input) const override {
    return geometry_.is_brgemm_at_fault(input.sizes(), plain_weight().sizes())
               ? "in this corner oneDNN's kernels read what they should not"
               : nullptr;
  }
  memory::desc weight_desc(const Tensor& plain) const override {
    memory::dims sizes = plain.sizes().vec(), strides = plain.strides().vec();
    if (geometry_.groups > 1) {
      sizes[0] /= geometry_.groups;
      sizes.insert(sizes.begin(), geometry_.groups);
      strides.insert(strides.begin(), plain.stride(0) * sizes[1]);
    }
    return {sizes, memory::data_type::s8, strides};
  }
  int weight_scales_mask() const override { return geometry_.groups > 1 ? 3 : 1; }
  memory::dims ordinary_input_sizes() const override {
    const at::IntArrayRef weight = plain_weight().sizes();
    const auto at_least_a_window = [&](size_t i) { return std::max<int64_t>(28, geometry_.window(i, weight)); };
    return {1, input_channels(), at_least_a_window(0), at_least_a_window(1)};
  }
  memory::desc result_desc(const memory::dims& sizes, memory::data_type type) const override {
    return {sizes, type, memory::format_tag::nhwc};
  }
  dnnl::primitive_desc primitive_desc(const memory::dims& source_sizes, const memory::desc& weight,
                                      memory::data_type result, const dnnl::primitive_attr& attr) const override {
    const memory::desc source(source_sizes, memory::data_type::u8, memory::format_tag::nhwc);
    const memory::desc bias_desc =
        bias().defined() ? memory::desc({output_channels()}, memory::data_type::f32, memory::format_tag::a)
                         : memory::desc();
    memory::dims dilation = geometry_.dilation;
    for (auto& d : dilation) --d;  // oneDNN counts the holes
    dnnl::convolution_forward::primitive_desc desc(
        engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, source, weight, bias_desc,
        result_desc(kernel_result_sizes(source_sizes), result), geometry_.stride, dilation, geometry_.begin,
        geometry_.end, attr, /*allow_empty=*/true);
    while (desc && pads_holes() && std::string_view(desc.impl_info_str()).find("amx") != std::string_view::npos) {
      if (!desc.next_impl()) return {};
    }
    return desc;
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
};

c10::intrusive_ptr<QuantizedConvolutionContext> prepack(
    const Tensor& weight, const Tensor& weight_scales, const std::optional<Tensor>& bias, Ints stride,
    const Ints& padding, Ints dilation, int64_t groups, std::vector<std::string> post_ops,
    const std::vector<double>& input, const std::vector<double>& result, const std::vector<double>& operands) {
  constexpr const char* where = "ipex::quantized_convolution_prepack";
  TORCH_CHECK(padding.size() == 4, where, ": expected 4 integers in padding, got ", at::IntArrayRef(padding), ".");
  return c10::make_intrusive<QuantizedConvolutionContext>(
      spec_of({where, op_name}, weight, weight_scales, bias, std::move(post_ops), input, result, operands),
      geometry_of(std::move(stride), {padding[0], padding[1]}, {padding[2], padding[3]}, std::move(dilation), groups));
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<QuantizedConvolutionContext>(m, "QuantizedConvolutionContext");
  m.def(
      "quantized_convolution_prepack(Tensor weight, Tensor weight_scales, Tensor? bias, int[] stride, int[] padding, "
      "int[] dilation, int groups, str[] post_ops, float[] input, float[] result, float[] operands) -> "
      "__torch__.torch.classes.ipex.QuantizedConvolutionContext",
      prepack);
  m.def(
      "quantized_convolution_run(Tensor input, __torch__.torch.classes.ipex.QuantizedConvolutionContext context, "
      "Tensor[] operands, bool eager_layout) -> Tensor",
      torch::CppFunction::makeFromBoxedFunction<run_boxed<QuantizedConvolutionContext>>());
}

}  // namespace
}  // namespace ipex::runtime
