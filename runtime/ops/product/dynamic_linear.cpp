// linear in int8, dynamically quantised.
//
//   ipex::dynamic_linear_prepack(weight, bias, post_ops) -> DynamicLinearContext
//   ipex::dynamic_linear_run(input, context, operands, eager_layout) -> Tensor
//
// The weight is rounded to int8 when it is packed, with a scale for each output. A call rounds each row of its input to
// uint8, with a scale and a zero of the row's own, so that no data is needed beforehand and no row depends on another. The
// sums are exact integers; bias and post-ops are applied in float32. A row with NaN or infinity is all NaN.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "memory/scratch.h"
#include "ops/product/packed_bytes.h"
#include "ops/product/round_weight.h"
#include "ops/product/share_product.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

constexpr const char* op_name = "ipex::dynamic_linear_run";

class DynamicLinearContext final : public LowBitLinear {
 public:
  explicit DynamicLinearContext(LowBitSpec spec) : LowBitLinear(std::move(spec)) {
    TORCH_CHECK(format().codes == CodeFormat::int8 && this->spec().group_size == inputs() && !has_offsets() &&
                    !this->spec().order.defined() && inputs() <= most_depth_of_bytes,
                op_name, ": expected int8 with a scale for each output, and at most ", most_depth_of_bytes,
                " inputs in order, got ", format().name, " and ", inputs(), ". Leave this layer in float32.");
  }

  static c10::intrusive_ptr<DynamicLinearContext> load(const State& state) {
    return c10::make_intrusive<DynamicLinearContext>(low_bit_spec(op_name, state));
  }

 private:
  std::unique_ptr<const PackedCodes> pack(const LowBitSpec& spec) const override {
    return std::make_unique<const PackedBytes>(spec.codes, spec.scales, stored_forms());
  }
  void multiply(const InputRows& rows, const ElementwiseSteps& steps, float* result) const override {
    const auto& weight = static_cast<const PackedBytes&>(packed());
    const int64_t panel_columns = kernels().bytes_product.panel_columns;
    // Each thread rounds the rows that it multiplies, in memory of its own.
    share_rows_and_panels({rows.count, inputs(), outputs(), panel_columns}, [&](int64_t first_row, int64_t last_row) {
      const int64_t count = last_row - first_row;
      const at::Tensor memory = scratch(RoundedRows::size_of(count, inputs()));
      const RoundedRows rounded(memory.mutable_data_ptr<uint8_t>(), count, inputs());
      for (int64_t row = 0; row < count; ++row) rounded.round(row, rows.first + (first_row + row) * rows.stride);
      const BytesProduct product = weight.product(rounded, first_row, steps, result, steps.columns);
      return [product, memory](auto... range) { kernels().bytes_product.multiply(product, range...); };
    });
  }
  const char* rows_are() const override { return "uint8, quantised in each call"; }
};

c10::intrusive_ptr<DynamicLinearContext> dynamic_linear_prepack(const at::Tensor& weight,
                                                                const std::optional<at::Tensor>& bias,
                                                                std::vector<std::string> post_ops) {
  auto context = c10::make_intrusive<DynamicLinearContext>(quantized(
      op_name, weight, bias, std::move(post_ops), *low_bit_format("int8"), /*group_size=*/0, /*symmetric=*/true));
  context->ensure_packed();
  return context;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<DynamicLinearContext>(m, "DynamicLinearContext");
  define(m,
         "dynamic_linear_prepack(Tensor weight, Tensor? bias, str[] post_ops) -> "
         "__torch__.torch.classes.ipex.DynamicLinearContext",
         dynamic_linear_prepack);
  define(
      m,
      "dynamic_linear_run(Tensor input, __torch__.torch.classes.ipex.DynamicLinearContext context, Tensor[] operands, "
      "bool eager_layout) -> Tensor",
      OnStack{run_boxed<DynamicLinearContext>});
}

}  // namespace
}  // namespace ipex::runtime
