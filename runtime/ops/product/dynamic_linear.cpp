// linear in int8, dynamically quantised.
//
//   ipex::dynamic_linear_prepack(weight, bias, post_ops) -> DynamicLinearContext
//   ipex::dynamic_linear_run(input, context, operands, eager_layout) -> Tensor
//
// The weight is rounded to int8 when it is packed, with a scale for each output. A call rounds each row of its input to
// uint8, with a scale and a zero of the row's own, so that no data is needed beforehand and no row depends on another. The
// sums are exact integers; bias and post-ops are applied in float32. A row with NaN or infinity is all NaN.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <limits>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "memory/weight_memory.h"
#include "ops/product/low_bit_linear.h"
#include "ops/product/share_product.h"

namespace ipex::runtime {
namespace {

constexpr const char* op_name = "ipex::dynamic_linear_run";

// As kernels/bytes_product.h wants them.
class PackedBytes final : public PackedCodes {
 public:
  PackedBytes(const at::Tensor& codes, const at::Tensor& scales, const StoredForms& stored)
      : outputs_(codes.size(0)),
        inputs_(codes.size(1)),
        panel_columns_(kernels().bytes_product.panel_columns),
        depth_(at::divup(inputs_, bytes_of_a_word)),
        panels_(at::divup(outputs_, panel_columns_)),
        bytes_(stored.get(c10::str("int8, ", panel_columns_, " columns"),
                          {at::kChar, {bytes_of_a_word * panels_ * depth_ * panel_columns_}},
                          [&] { return in_panels(codes); })),
        sums_(stored.get(c10::str("int8 sums, ", panel_columns_, " columns"), {at::kInt, {panels_ * panel_columns_}},
                         [&] { return sums_of(codes); })),
        scales_(zero_weight({panels_ * panel_columns_}, at::kFloat)) {
    std::copy_n(scales.const_data_ptr<float>(), outputs_, scales_.mutable_data_ptr<float>());
  }

  at::Tensor codes() const override {
    const OutsideOfPythonModes outside;
    at::Tensor codes = at::empty({outputs_, inputs_}, at::kChar);
    const auto* bytes = bytes_.const_data_ptr<int8_t>();
    auto* to = codes.mutable_data_ptr<int8_t>();
    for (int64_t output = 0; output < outputs_; ++output) {
      for (int64_t k = 0; k < inputs_; ++k) to[output * inputs_ + k] = bytes[place(output, k)];
    }
    return codes;
  }

  void multiply(const InputRows& rows, const ElementwiseSteps& steps, float* result) const {
    const BytesProductKernels& kernel = kernels().bytes_product;
    const int64_t stride = stride_of_bytes(inputs_);
    // Each thread rounds the rows that it multiplies, in memory of its own.
    share_rows_and_panels({rows.count, inputs_, outputs_, panel_columns_}, [&](int64_t first_row, int64_t last_row) {
      const int64_t count = last_row - first_row;
      const at::Tensor memory = scratch(count * (stride + static_cast<int64_t>(sizeof(RowScale))));
      auto* bytes = static_cast<uint8_t*>(memory.data_ptr());
      auto* row_scales = reinterpret_cast<RowScale*>(bytes + count * stride);
      for (int64_t row = 0; row < count; ++row) {
        row_scales[row] = kernel.quantize(rows.first + (first_row + row) * rows.stride, inputs_, bytes + row * stride);
      }
      const BytesProduct product{.rows = bytes,
                                 .row_stride = stride,
                                 .row_scales = row_scales,
                                 .first_row = first_row,
                                 .words = static_cast<const uint32_t*>(bytes_.const_data_ptr()),
                                 .depth = depth_,
                                 .panel_size = depth_ * panel_columns_,
                                 .column_scales = scales_.const_data_ptr<float>(),
                                 .column_sums = sums_.const_data_ptr<int32_t>(),
                                 .steps = steps,
                                 .result = result,
                                 .result_stride = steps.columns};
      return [product, memory, &kernel](auto... range) { kernel.multiply(product, range...); };
    });
  }

 private:
  at::Tensor in_panels(const at::Tensor& codes) const {
    at::Tensor result = zero_weight({bytes_of_a_word * panels_ * depth_ * panel_columns_}, at::kChar);
    const auto* from = codes.const_data_ptr<int8_t>();
    auto* bytes = result.mutable_data_ptr<int8_t>();
    at::parallel_for(0, outputs_, panel_columns_, [&](int64_t first, int64_t last) {
      for (int64_t output = first; output < last; ++output) {
        for (int64_t k = 0; k < inputs_; ++k) bytes[place(output, k)] = from[output * inputs_ + k];
      }
    });
    return result;
  }

  at::Tensor sums_of(const at::Tensor& codes) const {
    at::Tensor result = zero_weight({panels_ * panel_columns_}, at::kInt);
    const auto* from = codes.const_data_ptr<int8_t>();
    auto* sums = result.mutable_data_ptr<int32_t>();
    for (int64_t i = 0; i < outputs_ * inputs_; ++i) sums[i / inputs_] += from[i];
    return result;
  }

  int64_t place(int64_t output, int64_t k) const {
    const int64_t panel = output / panel_columns_, column = output % panel_columns_;
    return ((panel * depth_ + k / bytes_of_a_word) * panel_columns_ + column) * bytes_of_a_word + k % bytes_of_a_word;
  }

  const int64_t outputs_, inputs_, panel_columns_, depth_, panels_;
  const at::Tensor bytes_, sums_, scales_;
};

class DynamicLinearContext final : public LowBitLinear {
 public:
  explicit DynamicLinearContext(LowBitSpec spec) : LowBitLinear(std::move(spec)) {
    TORCH_CHECK(format().codes == CodeFormat::int8 && this->spec().group_size == inputs() &&
                    !this->spec().offsets.defined() && !this->spec().order.defined() && inputs() <= most_depth_of_bytes,
                op_name, ": expected int8 with a scale for each output, and at most ", most_depth_of_bytes,
                " inputs in order, got ", format().name, " and ", inputs(), ". Leave this layer in float32.");
  }

  static c10::intrusive_ptr<DynamicLinearContext> load(const State& state) {
    return c10::make_intrusive<DynamicLinearContext>(low_bit_spec(op_name, state));
  }

 private:
  std::unique_ptr<const PackedCodes> pack(const at::Tensor& codes) const override {
    return std::make_unique<const PackedBytes>(codes, spec().scales, stored_forms());
  }
  void multiply(const InputRows& rows, const ElementwiseSteps& steps, float* result) const override {
    static_cast<const PackedBytes&>(packed()).multiply(rows, steps, result);
  }
  const char* rows_are() const override { return "uint8, quantised in each call"; }
};

c10::intrusive_ptr<DynamicLinearContext> dynamic_linear_prepack(const at::Tensor& weight,
                                                                const std::optional<at::Tensor>& bias,
                                                                std::vector<std::string> post_ops) {
  constexpr int64_t whole_row = std::numeric_limits<int64_t>::max();
  auto context = c10::make_intrusive<DynamicLinearContext>(
      quantized(op_name, weight, bias, std::move(post_ops), *low_bit_format("int8"), whole_row, /*symmetric=*/true));
  context->ensure_packed();
  return context;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<DynamicLinearContext>(m, "DynamicLinearContext");
  m.def(
      "dynamic_linear_prepack(Tensor weight, Tensor? bias, str[] post_ops) -> "
      "__torch__.torch.classes.ipex.DynamicLinearContext",
      dynamic_linear_prepack);
  m.def(
      "dynamic_linear_run(Tensor input, __torch__.torch.classes.ipex.DynamicLinearContext context, Tensor[] operands, "
      "bool eager_layout) -> Tensor",
      torch::CppFunction::makeFromBoxedFunction<run_boxed<DynamicLinearContext>>());
}

}  // namespace
}  // namespace ipex::runtime
