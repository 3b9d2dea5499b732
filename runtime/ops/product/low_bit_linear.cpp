#include "ops/product/low_bit_linear.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "memory/result_memory.h"
#include "packed/dead_operand.h"
#include "packed/expect_tensor.h"
#include "packed/memory_format.h"

namespace ipex::runtime {
namespace {

bool is_order(const at::Tensor& order, int64_t inputs) {
  return std::get<0>(order.sort()).equal(at::arange(inputs, at::kLong));
}

void check_row_bits(const char* name, int64_t row_bits) {
  TORCH_CHECK(row_bits == 8 || row_bits == 16 || row_bits == 24, name, ": expected row_bits of 8, 16 or 24, got ",
              row_bits, damaged);
}

LowBitSpec checked(LowBitSpec spec) {
  const auto& [name, codes, scales, offsets, bias, order, post_ops, inputs, group_size, follows_input, row_bits,
               values] = spec;
  TORCH_CHECK(inputs > 0 && group_size > 0 && group_size <= inputs && (group_size % 8 == 0 || group_size == inputs),
              name, ": expected inputs, and groups of a multiple of 8 or of all of them, got ", inputs,
              " in groups of ", group_size, damaged);
  check_row_bits(name, row_bits);
  const LowBitFormat* format = codes.defined() ? low_bit_format(codes.scalar_type(), values.defined()) : nullptr;
  TORCH_CHECK(format, name, ": expected a weight of one of ", low_bit_format_names(), " (two numbers in a uint8), got ",
              text_of(codes), damaged);
  expect_tensor_if_any(name, "values", values, numbers_of_a_table);
  TORCH_CHECK(!values.defined() || values.equal(format->table()), name, ": expected the values of ", format->name,
              ", got others", damaged);
  expect_tensor(name, "weight", codes, {any_size, format->row_length(inputs)}, format->dtype);
  const int64_t outputs = codes.size(0);
  TORCH_CHECK(format->is_integer() || !offsets.defined(), name, ": expected no offsets beside a weight of ",
              format->name, ", got ", text_of(offsets), damaged);
  expect_tensor(name, "scales", scales, {outputs, spec.groups()});
  expect_tensor_if_any(name, "offsets", offsets, {outputs, spec.groups()});
  expect_tensor_if_any(name, "bias", bias, outputs);
  expect_tensor_if_any(name, "order", order, inputs, at::kLong);
  TORCH_CHECK(!order.defined() || is_order(order, inputs), name, ": expected each of ", inputs,
              " inputs once in the order of inputs", damaged);
  spec.codes = spec.codes.detach().contiguous();
  // Others may hold these, and write to them.
  for (at::Tensor* tensor : {&spec.scales, &spec.offsets, &spec.bias, &spec.order}) {
    if (tensor->defined()) *tensor = tensor->detach().clone(at::MemoryFormat::Contiguous);
  }
  return spec;
}

// From 0 to 15.
at::Tensor out_of_halves(const at::Tensor& bytes, int64_t inputs) {
  const at::Tensor wide = bytes.to(at::kShort);
  return at::stack({wide.bitwise_and(15), wide.bitwise_right_shift(4)}, 2).flatten(1).narrow(1, 0, inputs);
}

// What the codes say, without scales and offsets.
at::Tensor plain_codes(const at::Tensor& saved, int64_t inputs, const at::Tensor& values) {
  if (saved.scalar_type() != at::kByte) return saved.to(at::kFloat);
  const at::Tensor codes = out_of_halves(saved, inputs);
  if (!values.defined()) return (codes.bitwise_xor(8) - 8).to(at::kFloat);  // the sign is bit 3
  return values.index_select(0, codes.flatten().to(at::kInt)).view(codes.sizes());
}

LowBitSpec without_numbers(LowBitSpec spec) {
  spec.codes = spec.scales = spec.offsets = at::Tensor();
  return spec;
}

LowBitSpec with(LowBitSpec spec, const std::vector<std::string>& post_ops, int64_t row_bits) {
  check_row_bits(spec.name, row_bits);
  spec.post_ops = post_ops;
  spec.row_bits = row_bits;
  return spec;
}

}  // namespace

LowBitSpec low_bit_spec(const char* name, const State& state) {
  const StateReader reader(name, state);
  return {name,
          reader.tensor("codes"),
          reader.tensor("scales"),
          reader.tensor("offsets"),
          reader.tensor("bias"),
          reader.tensor("order"),
          std::get<3>(state),
          reader.integers("inputs", 1, 1)[0],
          reader.integers("group_size", 1, 1)[0],
          std::get<2>(state).contains("follows_input"),
          std::get<2>(state).contains("row_bits") ? reader.integers("row_bits", 1, 1)[0] : 24,
          reader.tensor("values")};
}

at::Tensor in_halves(const at::Tensor& codes) {
  const at::Tensor even = at::constant_pad_nd(codes, {0, codes.size(1) % 2}).to(at::kShort).bitwise_and(15);
  const at::Tensor pairs = even.view({codes.size(0), -1, 2});
  return (pairs.select(2, 0) + pairs.select(2, 1) * 16).to(at::kByte);
}

LowBitLinear::LowBitLinear(LowBitSpec spec)
    : FusedOp(spec.name, spec.post_ops, std::nullopt),
      weight_(std::make_shared<const Weight>(checked(std::move(spec)))),
      spec_(without_numbers(*weight_->unpacked)),
      has_offsets_(weight_->unpacked->offsets.defined()),
      outputs_(weight_->unpacked->outputs()),
      format_(weight_->unpacked->format()),
      steps_(post_ops()) {}

LowBitLinear::LowBitLinear(const LowBitLinear& other, const std::vector<std::string>& post_ops, int64_t row_bits)
    : FusedOp(other.name(), post_ops, std::nullopt),
      weight_(other.weight_),
      spec_(with(other.spec_, post_ops, row_bits)),
      has_offsets_(other.has_offsets_),
      outputs_(other.outputs_),
      format_(other.format_),
      steps_(this->post_ops()) {}

const PackedCodes& LowBitLinear::packed() const {
  return *weight_->packed.get([&] {
    std::optional<LowBitSpec>& unpacked = weight_->unpacked;
    TORCH_CHECK(has_all_its_memory(unpacked->codes), name(), ": expected a weight for ", inputs(), " inputs, got a ",
                "tensor whose memory is gone. Don't resize the storage of what a context was made from.");
    const OutsideOfPythonModes outside;
    std::unique_ptr<const PackedCodes> made = pack(*unpacked);
    unpacked.reset();
    return made;
  });
}

LowBitSpec LowBitLinear::whole_spec() const {
  const OutsideOfPythonModes outside;
  LowBitSpec spec = spec_;
  spec.codes = packed().codes();
  spec.scales = packed().scales();
  spec.offsets = packed().offsets();
  return spec;
}

State LowBitLinear::state() const {
  c10::Dict<std::string, at::Tensor> tensors;
  const LowBitSpec whole = whole_spec();
  for (const auto& [name, tensor] : {std::pair{"codes", whole.codes},
                                     {"scales", whole.scales},
                                     {"offsets", whole.offsets},
                                     {"bias", whole.bias},
                                     {"order", whole.order},
                                     {"values", format_.table()}}) {
    if (tensor.defined()) tensors.insert(name, tensor);
  }
  c10::Dict<std::string, std::vector<int64_t>> integers;
  integers.insert("inputs", std::vector<int64_t>{spec_.inputs});
  integers.insert("group_size", std::vector<int64_t>{spec_.group_size});
  if (spec_.follows_input) integers.insert("follows_input", std::vector<int64_t>{1});
  if (spec_.row_bits != 24) integers.insert("row_bits", std::vector<int64_t>{spec_.row_bits});
  // Older readers would not ask for an order, the input's dtype or a table, nor know floats.
  const bool is_new = spec_.order.defined() || spec_.follows_input || !format_.is_integer();
  const int64_t version = format_.values ? 8 : is_new ? 5 : 1;
  return {version, tensors, integers, post_op_texts()};
}

at::Tensor linear_of_numbers(const at::Tensor& input, const LowBitSpec& weight) {
  // At once, several times over: they stay in the cache, and a head takes no gigabytes.
  constexpr int64_t most_numbers = 1 << 19;
  const int64_t outputs = weight.outputs(), at_once = std::max<int64_t>(1, most_numbers / weight.inputs);
  const at::Tensor places = weight.order.defined() ? weight.order.argsort() : at::Tensor();
  std::vector<at::Tensor> results;
  for (int64_t first = 0; first == 0 || first < outputs; first += at_once) {
    const auto some = [&](const at::Tensor& x) {
      return x.defined() ? x.narrow(0, first, std::min(at_once, outputs - first)) : x;
    };
    const auto of_inputs = [&](const at::Tensor& of_groups) {
      return some(of_groups).repeat_interleave(weight.group_size, 1).narrow(1, 0, weight.inputs);
    };
    const at::Tensor codes = plain_codes(some(weight.codes), weight.inputs, weight.values);
    at::Tensor numbers =
        (weight.offsets.defined() ? codes - of_inputs(weight.offsets) : codes) * of_inputs(weight.scales);
    if (places.defined()) numbers = numbers.index_select(1, places);
    const at::Tensor bias = some(weight.bias);
    results.push_back(at::linear(input, numbers.to(input.scalar_type()),
                                 bias.defined() ? std::optional(bias.to(input.scalar_type())) : std::nullopt));
  }
  return results.size() == 1 ? results.front() : at::cat(results, -1);
}

at::DimVector LowBitLinear::result_sizes(const at::Tensor& input) const {
  at::DimVector sizes(input.sizes());
  sizes.back() = outputs_;
  return sizes;
}

const char* LowBitLinear::reason_for_aten(const at::Tensor& input) const {
  if (!is_plain_cpu_float(input)) return "the input is not a float32 CPU tensor";
  if (wants_gradient(input)) return "the input requires a gradient";
  if (input.numel() == 0) return "there is nothing to compute";
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  return nullptr;
}

bool LowBitLinear::takes(const at::Tensor& input) const {
  return input.dim() >= 1 && input.size(-1) == inputs() && !reason_for_aten(input);
}

at::Tensor LowBitLinear::run(const at::Tensor& input, const std::vector<at::Tensor>& operands,
                             bool /*eager_layout*/) const {
  TORCH_CHECK(input.dim() >= 1 && input.size(-1) == inputs(), name(), ": expected input with last dimension ", inputs(),
              " (weight is [", outputs_, ", ", inputs(), "]), got ", input.sizes(), ".");
  check_operands(operands);
  if (spec_.follows_input && (input.scalar_type() == at::kBFloat16 || input.scalar_type() == at::kHalf)) {
    std::vector<at::Tensor> wide;
    for (const at::Tensor& operand : operands) wide.push_back(operand.to(at::kFloat));
    return run(input.to(at::kFloat), wide, true).to(input.scalar_type());
  }
  size_t done = 0;
  if (const char* reason = reason_for_aten(input)) {
    remember(reason);
    return apply_rest(linear_of_numbers(input, whole_spec()), operands, done);
  }
  const at::Tensor result = run_kernel(input, operands, done);
  return apply_rest(result, operands, done);
}

class LowBitLinear::CallResult final : public FusedOp::Result {
 public:
  explicit CallResult(at::DimVector sizes) : sizes_(std::move(sizes)) {}

  at::ScalarType dtype() const override { return at::kFloat; }
  at::IntArrayRef sizes() const override { return sizes_; }
  int64_t channel_dimension() const override { return static_cast<int64_t>(sizes_.size()) - 1; }
  bool is_laid_out_like(const at::Tensor& tensor) const override { return tensor.is_contiguous(); }
  at::Tensor kernel_view(const at::Tensor& tensor) const override { return contiguous_result(tensor); }

 private:
  at::DimVector sizes_;
};

FusedPostOps LowBitLinear::fused_with(const std::vector<at::Tensor>& operands, const at::DimVector& sizes) const {
  if (!steps_.applies_all()) return fuse(operands, CallResult(sizes), KernelSteps::applies);
  FusedPostOps all;
  all.count = post_ops().size();
  return all;
}

bool LowBitLinear::all_steps(const std::vector<at::Tensor>& operands, const at::DimVector& sizes,
                             StepsOfCall& to) const {
  check_operands(operands);
  to.fused = fused_with(operands, sizes);
  if (to.fused.count != post_ops().size()) return false;
  to.steps = steps_.of_call(to.fused, spec_.bias, outputs_, to.room);
  return true;
}

at::Tensor LowBitLinear::run_kernel(const at::Tensor& input, const std::vector<at::Tensor>& operands,
                                    size_t& done) const {
  // Asked before fuse(), which holds the operand too.
  const bool may_accumulate = begins_with_addition() && is_dead(operands.front());
  const at::DimVector sizes = result_sizes(input);
  const FusedPostOps fused = fused_with(operands, sizes);
  const bool accumulates = may_accumulate && adds_in_place(fused, operands.front());
  at::Tensor result = accumulates ? in_memory_of(operands.front(), sizes, at::MemoryFormat::Contiguous)
                                  : empty_result(sizes, at::kFloat);
  const std::optional<InputRows> strided = rows_of(input);
  const at::Tensor dense = strided ? at::Tensor() : contiguous_result(input);
  KernelSteps::Room room;
  multiply(strided ? *strided : *rows_of(dense), steps_.of_call(fused, spec_.bias, outputs_, room),
           result.data_ptr<float>());
  done = fused.count;
  return result;
}

Facts LowBitLinear::facts() const {
  const at::Tensor of_groups = packed().scales();
  const std::string scales = c10::str(of_groups.min().item<float>(), "..", of_groups.max().item<float>());
  Facts facts{name(),
              {{"weight", std::vector{outputs_, inputs()}},
               {"weight_format", format_.name},
               {"group", spec_.groups() == 1 ? c10::IValue("row") : c10::IValue(spec_.group_size)},
               {"symmetric", !has_offsets_},
               {"scales", scales},
               {"rows", rows_are()},
               {"bias", spec_.bias.defined()},
               {"post_ops", post_op_texts()}}};
  if (spec_.order.defined()) facts.add({{"inputs", "in an order"}});
  facts.add_if_any("packed", stored_forms().describe());
  return facts;
}

}  // namespace ipex::runtime
