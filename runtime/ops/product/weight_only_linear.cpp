// linear whose weight alone is quantised, to int8 or int4, in groups of inputs or a row at a time.
//
//   ipex::weight_only_linear_prepack(weight, bias, post_ops, bits, group_size, symmetric) -> WeightOnlyLinearContext
//   ipex::weight_only_linear_run(input, context, operands, eager_layout) -> Tensor
//
// Inputs stay float32. A few rows wait for the weight to be read: it is a quarter or an eighth of the float32 one, and
// becomes floats in registers. For many rows each panel of it becomes floats in scratch memory, and many_rows.h multiplies.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <limits>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "memory/weight_memory.h"
#include "ops/product/low_bit_linear.h"
#include "threads/grain.h"

namespace ipex::runtime {
namespace {

constexpr const char* op_name = "ipex::weight_only_linear_run";

// With more, making floats of a panel once is as fast.
constexpr int64_t most_rows_of_codes = 48;

int64_t rounded_up(int64_t count, int64_t size) { return at::divup(count, size) * size; }

// As kernels/codes_product.h wants them.
class PanelsOfCodes final : public PackedCodes {
 public:
  PanelsOfCodes(const at::Tensor& codes, const LowBitSpec& spec, const StoredForms& stored)
      : outputs_(codes.size(0)),
        inputs_(spec.inputs),
        is_4_bit_(codes.scalar_type() == at::kByte),
        panel_columns_(kernels().codes_product.panel_columns),
        panels_(at::divup(outputs_, panel_columns_)) {
    // Where a row has one scale, it is written down many times: sums of sums round less.
    constexpr int64_t most_at_once = 128;
    const bool is_one_group = spec.groups() == 1;
    group_size_ = is_one_group ? std::min(most_at_once, rounded_up(inputs_, codes_of_a_word)) : spec.group_size;
    groups_ = at::divup(inputs_, group_size_);
    const auto get = [&](const char* what, const FormShape& shape, StoredForms::Make make) {
      return stored.get(c10::str(what, ", ", panel_columns_, " columns, groups of ", group_size_), shape, make);
    };
    const FormShape of_groups{at::kFloat, {panels_ * groups_ * panel_columns_}};
    bytes_ = get(is_4_bit_ ? "int4" : "int8", {at::kByte, {byte_count()}}, [&] { return codes_in_panels(codes); });
    scales_ = get("scales", of_groups, [&] { return in_panels(spec.scales, is_one_group); });
    if (spec.offsets.defined()) {
      offsets_ = get("offsets", of_groups, [&] { return in_panels(spec.offsets, is_one_group); });
    }
  }

  at::Tensor codes() const override {
    const OutsideOfPythonModes outside;
    const int64_t width = is_4_bit_ ? at::divup(inputs_, 2) : inputs_;
    at::Tensor codes = at::zeros({outputs_, width}, is_4_bit_ ? at::kByte : at::kChar);
    const auto* bytes = bytes_.const_data_ptr<uint8_t>();
    auto* to = static_cast<uint8_t*>(codes.mutable_data_ptr());
    for (int64_t output = 0; output < outputs_; ++output) {
      for (int64_t k = 0; k < inputs_; ++k) {
        const uint8_t byte = bytes[place(output, k)];
        if (is_4_bit_) {
          to[output * width + k / 2] |= static_cast<uint8_t>(byte & (k % 2 == 0 ? 15 : 240));
        } else {
          to[output * width + k] = byte;
        }
      }
    }
    return codes;
  }

  void multiply(const InputRows& rows, const ElementwiseSteps& steps, float* result) const {
    rows.count <= most_rows_of_codes ? multiply_codes(rows, steps, result) : multiply_floats(rows, steps, result);
  }

 private:
  int64_t depth() const { return groups_ * group_size_; }
  int64_t byte_count() const { return panels_ * depth() * panel_columns_ / (is_4_bit_ ? 2 : 1); }

  CodesMatrix matrix() const {
    return {is_4_bit_ ? CodeFormat::int4 : CodeFormat::int8,
            bytes_.const_data_ptr<uint8_t>(),
            scales_.const_data_ptr<float>(),
            offsets_.defined() ? offsets_.const_data_ptr<float>() : nullptr,
            group_size_,
            groups_};
  }

  // The byte that holds a code: in int4, two neighbours of a column share it.
  int64_t place(int64_t output, int64_t k) const {
    const int64_t panel = output / panel_columns_, column = output % panel_columns_;
    const int64_t number = panel * depth() + k;  // of a line of the panel's columns
    if (!is_4_bit_) return number * panel_columns_ + column;
    constexpr int64_t bytes = codes_of_a_word / 2;
    return (number / codes_of_a_word * panel_columns_ + column) * bytes + number % codes_of_a_word / 2;
  }

  at::Tensor codes_in_panels(const at::Tensor& codes) const {
    at::Tensor result = zero_weight({byte_count()}, at::kByte);
    auto* bytes = result.mutable_data_ptr<uint8_t>();
    const auto* from = static_cast<const uint8_t*>(codes.const_data_ptr());
    at::parallel_for(0, panels_, 1, [&](int64_t first, int64_t last) {
      for (int64_t output = first * panel_columns_; output < std::min(outputs_, last * panel_columns_); ++output) {
        for (int64_t k = 0; k < inputs_; ++k) {
          if (is_4_bit_) {
            const int code = from[output * at::divup(inputs_, 2) + k / 2] >> (k % 2 * 4) & 15;
            bytes[place(output, k)] |= static_cast<uint8_t>(code << (k % 2 * 4));
          } else {
            bytes[place(output, k)] = from[output * inputs_ + k];
          }
        }
      }
    });
    return result;
  }

  at::Tensor in_panels(const at::Tensor& of_groups, bool is_one_group) const {
    at::Tensor in_panels = zero_weight({panels_ * groups_ * panel_columns_}, at::kFloat);
    auto* panels = in_panels.mutable_data_ptr<float>();
    const auto* from = of_groups.const_data_ptr<float>();
    for (int64_t output = 0; output < outputs_; ++output) {
      for (int64_t group = 0; group < groups_; ++group) {
        const int64_t panel = output / panel_columns_, column = output % panel_columns_;
        panels[(panel * groups_ + group) * panel_columns_ + column] =
            is_one_group ? from[output] : from[output * groups_ + group];
      }
    }
    return in_panels;
  }

  void multiply_codes(const InputRows& rows, const ElementwiseSteps& steps, float* result) const {
    const bool pads = depth() != inputs_;
    const at::Tensor memory =
        pads || offsets_.defined() ? scratch(sizeof(float) * rows.count * (depth() + groups_)) : at::Tensor();
    auto* padded = memory.defined() ? static_cast<float*>(memory.data_ptr()) : nullptr;
    float* sums = offsets_.defined() ? padded + rows.count * depth() : nullptr;
    for (int64_t row = 0; memory.defined() && row < rows.count; ++row) {
      float* to = padded + row * depth();
      std::copy_n(rows.first + row * rows.stride, inputs_, to);
      std::fill(to + inputs_, to + depth(), 0.f);
      for (int64_t group = 0; sums && group < groups_; ++group) {
        double sum = 0;
        for (int64_t k = 0; k < group_size_; ++k) sum += to[group * group_size_ + k];
        sums[row * groups_ + group] = static_cast<float>(sum);
      }
    }
    const CodesProduct product{.rows = padded ? padded : rows.first,
                               .row_stride = padded ? depth() : rows.stride,
                               .row_count = rows.count,
                               .group_sums = sums,
                               .matrix = matrix(),
                               .steps = steps,
                               .result = result};
    constexpr int64_t elements_worth_waking = 1 << 15;
    const int64_t grain = grain_of(panels_, panels_ * depth() * panel_columns_, elements_worth_waking);
    const auto multiply = kernels().codes_product.multiply;
    at::parallel_for(0, panels_, grain, [&](int64_t first, int64_t last) { multiply(product, first, last); });
  }

  void multiply_floats(const InputRows& rows, const ElementwiseSteps& steps, float* result) const {
    at::parallel_for(0, panels_, /*grain_size=*/1, [&](int64_t first, int64_t last) {
      const at::Tensor memory = scratch(sizeof(float) * depth() * panel_columns_);
      auto* floats = static_cast<float*>(memory.data_ptr());
      const RowsProduct product{.rows = rows.first,
                                .row_stride = rows.stride,
                                .row_count = rows.count,
                                .matrix = {NumberFormat::floats, floats, inputs_},
                                .panel_columns = panel_columns_,
                                .panel_size = 0,  // one panel after the other lies there
                                .steps = steps,
                                .result = result,
                                .result_stride = steps.columns};
      for (int64_t panel = first; panel < last; ++panel) {
        kernels().codes_product.expand(matrix(), panel, floats);
        kernels().many_rows.multiply(product, 0, rows.count, panel, panel + 1);
      }
    });
  }

  const int64_t outputs_, inputs_;
  const bool is_4_bit_;
  const int64_t panel_columns_, panels_;
  int64_t group_size_, groups_;
  at::Tensor bytes_, scales_, offsets_;
};

class WeightOnlyLinearContext final : public LowBitLinear {
 public:
  explicit WeightOnlyLinearContext(LowBitSpec spec) : LowBitLinear(std::move(spec)) {}

  static c10::intrusive_ptr<WeightOnlyLinearContext> load(const State& state) {
    return c10::make_intrusive<WeightOnlyLinearContext>(low_bit_spec(op_name, state));
  }

 private:
  std::unique_ptr<const PackedCodes> pack(const at::Tensor& codes) const override {
    return std::make_unique<const PanelsOfCodes>(codes, spec(), stored_forms());
  }
  void multiply(const InputRows& rows, const ElementwiseSteps& steps, float* result) const override {
    static_cast<const PanelsOfCodes&>(packed()).multiply(rows, steps, result);
  }
  const char* rows_are() const override { return "float32"; }
};

c10::intrusive_ptr<WeightOnlyLinearContext> weight_only_linear_prepack(const at::Tensor& weight,
                                                                       const std::optional<at::Tensor>& bias,
                                                                       std::vector<std::string> post_ops, int64_t bits,
                                                                       int64_t group_size, bool symmetric) {
  TORCH_CHECK((bits == 8 || bits == 4) && (group_size == 0 || (group_size >= 8 && group_size % 8 == 0)), op_name,
              ": expected 8 or 4 bits, and a group_size of a multiple of 8, or 0 for whole rows, got ", bits, " and ",
              group_size, ".");
  auto context = c10::make_intrusive<WeightOnlyLinearContext>(
      quantized(op_name, weight, bias, std::move(post_ops), bits,
                group_size == 0 ? std::numeric_limits<int64_t>::max() : group_size, symmetric));
  context->ensure_packed();
  return context;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<WeightOnlyLinearContext>(m, "WeightOnlyLinearContext");
  m.def(
      "weight_only_linear_prepack(Tensor weight, Tensor? bias, str[] post_ops, int bits, int group_size, "
      "bool symmetric) -> __torch__.torch.classes.ipex.WeightOnlyLinearContext",
      weight_only_linear_prepack);
  m.def(
      "weight_only_linear_run(Tensor input, __torch__.torch.classes.ipex.WeightOnlyLinearContext context, "
      "Tensor[] operands, bool eager_layout) -> Tensor",
      torch::CppFunction::makeFromBoxedFunction<run_boxed<WeightOnlyLinearContext>>());
}

}  // namespace
}  // namespace ipex::runtime
