// linear of 8-bit numbers.
//
//   ipex::quantized_linear_prepack(weight, weight_scales, bias, post_ops, input, result, operands) -> QuantizedLinearContext
//   ipex::quantized_linear_run(input, context, operands, eager_layout) -> Tensor
//
// `input`, `result` and `operands` are scales and zero points, as affine.h has them.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "memory/result_memory.h"
#include "ops/product/linear.h"
#include "ops/quantized/quantized_op.h"
#include "packed/door.h"
#include "packed/memory_format.h"

namespace ipex::runtime {
namespace {

using dnnl::memory;

constexpr const char* op_name = "ipex::quantized_linear_run";

class QuantizedLinearContext final : public QuantizedOp {
 public:
  explicit QuantizedLinearContext(const QuantizedSpec& spec)
      : QuantizedOp(spec, /*weight_rank=*/2,
                    spec.weight.defined() && spec.weight.dim() == 2 ? spec.weight.size(0) : 0) {
    pack();
  }

  static c10::intrusive_ptr<QuantizedLinearContext> load(const State& state) {
    return c10::make_intrusive<QuantizedLinearContext>(read(op_name, state));
  }

 private:
  int64_t input_width() const { return plain_weight().size(1); }

  void check_input(const at::Tensor& input) const override {
    TORCH_CHECK(input.dim() >= 1 && input.size(-1) == input_width(), op_name, ": expected input with last dimension ",
                input_width(), " (weight is ", plain_weight().sizes(), "), got ", input.sizes(), ".");
  }
  std::unique_ptr<const PackedOp> float_op(const Spec& spec) const override {
    return std::make_unique<const LinearContext>(spec);
  }
  at::Tensor kernel_view(const at::Tensor& tensor) const override { return contiguous_result(tensor); }
  memory::dims kernel_sizes(const at::Tensor& source) const override {
    return {source.numel() / input_width(), input_width()};
  }
  memory::dims kernel_result_sizes(const memory::dims& source) const override { return {source[0], output_channels()}; }
  at::MemoryFormat kernel_format() const override { return at::MemoryFormat::Contiguous; }
  at::Tensor allocate(const at::Tensor& source, at::ScalarType dtype) const override {
    return empty_result(result_sizes(source), dtype);
  }
  at::Tensor user_view(const at::Tensor& result, const at::Tensor&, bool) const override { return result; }
  at::DimVector result_sizes(const at::Tensor& input) const override {
    at::DimVector sizes(input.sizes());
    sizes.back() = output_channels();
    return sizes;
  }
  bool laid_out_as_result(const at::Tensor& tensor, const at::Tensor&, bool) const override {
    return tensor.is_contiguous();
  }
  bool multiplies_rows() const override { return true; }
  int64_t channel_dimension(int64_t rank) const override { return rank - 1; }
  int64_t kernel_channel_dimension(int64_t rank) const override { return rank - 1; }
  // oneDNN multiplies by a [in, out] matrix; aten's weight is its transpose.
  memory::desc weight_desc(const at::Tensor& plain) const override {
    return {{plain.size(1), plain.size(0)}, memory::data_type::s8, memory::dims{plain.stride(1), plain.stride(0)}};
  }
  int weight_scales_mask() const override { return 1 << 1; }
  memory::dims ordinary_input_sizes() const override { return {64, input_width()}; }
  memory::desc result_desc(const memory::dims& sizes, memory::data_type type) const override {
    return {sizes, type, memory::format_tag::ab};
  }
  dnnl::primitive_desc primitive_desc(const memory::dims& source_sizes, const memory::desc& weight,
                                      memory::data_type result, const dnnl::primitive_attr& attr) const override {
    const memory::desc source(source_sizes, memory::data_type::u8, memory::format_tag::ab);
    const memory::desc bias_desc =
        bias().defined() ? memory::desc({1, output_channels()}, memory::data_type::f32, memory::format_tag::ab)
                         : memory::desc();
    return dnnl::matmul::primitive_desc(engine(), source, weight, bias_desc,
                                        result_desc(kernel_result_sizes(source_sizes), result), attr,
                                        /*allow_empty=*/true);
  }
};

c10::intrusive_ptr<QuantizedLinearContext> prepack(const at::Tensor& weight, const at::Tensor& weight_scales,
                                                   const std::optional<at::Tensor>& bias,
                                                   std::vector<std::string> post_ops, const std::vector<double>& input,
                                                   const std::vector<double>& result,
                                                   const std::vector<double>& operands) {
  return c10::make_intrusive<QuantizedLinearContext>(spec_of({"ipex::quantized_linear_prepack", op_name}, weight,
                                                             weight_scales, bias, std::move(post_ops), input, result,
                                                             operands));
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<QuantizedLinearContext>(m, "QuantizedLinearContext");
  define(m,
         "quantized_linear_prepack(Tensor weight, Tensor weight_scales, Tensor? bias, str[] post_ops, float[] input, "
         "float[] result, float[] operands) -> __torch__.torch.classes.ipex.QuantizedLinearContext",
         prepack);
  define(m,
         "quantized_linear_run(Tensor input, __torch__.torch.classes.ipex.QuantizedLinearContext context, "
         "Tensor[] operands, bool eager_layout) -> Tensor",
         OnStack{run_boxed<QuantizedLinearContext>});
}

}  // namespace
}  // namespace ipex::runtime
