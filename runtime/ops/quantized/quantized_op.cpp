#include "ops/quantized/quantized_op.h"

#include <ATen/ATen.h>

#include "isa/isa.h"
#include "kernels/bytes_product.h"
#include "packed/dead_operand.h"
#include "packed/expect_tensor.h"

namespace ipex::runtime {
namespace {

using dnnl::memory;

// Files of this version and earlier ones can be read. Version 2 added convolutions that are transposed or not 2-d.
constexpr int64_t quantized_version = 2;

QuantizedSpec checked(QuantizedSpec spec, int64_t weight_rank, int64_t output_channels) {
  const char* name = spec.name;
  const at::Tensor& weight = spec.weight;
  expect_tensor(name, "weight", weight, at::DimVector(weight_rank, any_size), at::kChar);
  TORCH_CHECK(weight.is_non_overlapping_and_dense(), name, ": expected a dense weight, got strides ", weight.strides(),
              " for ", weight.sizes(), damaged);
  expect_tensor(name, "weight_scales", spec.weight_scales, output_channels);
  expect_tensor_if_any(name, "bias", spec.bias, output_channels);
  spec.weight_scales = spec.weight_scales.contiguous();
  if (spec.bias.defined()) spec.bias = spec.bias.detach().contiguous();
  const size_t operands = operand_count(parse_post_ops(name, spec.post_ops));
  TORCH_CHECK(spec.operands.size() == operands, name, ": expected a scale and a zero point for each of ", operands,
              " operands, got ", spec.operands.size(), damaged);
  return spec;
}

at::Tensor number(double value, at::ScalarType dtype) { return at::full({1}, value, dtype); }

}  // namespace

QuantizedSpec spec_of(OpNames names, const at::Tensor& weight, const at::Tensor& weight_scales,
                      const std::optional<at::Tensor>& bias, std::vector<std::string> post_ops,
                      const std::vector<double>& input, const std::vector<double>& result,
                      const std::vector<double>& operands) {
  const auto one = [&](const std::vector<double>& numbers) {
    const OptionalAffines affines = affines_of(names.prepack, numbers);
    return affines.empty() ? std::optional<Affine>() : affines.front();
  };
  const std::optional<Affine> of_input = one(input);
  TORCH_CHECK(of_input, names.prepack, ": expected a scale and a zero point of the input, got none.");
  // The caller may write to them later, or free them.
  const auto own = [](const at::Tensor& x) { return x.defined() ? x.detach().clone() : x; };
  return {.name = names.run,
          .weight = own(weight),
          .weight_scales = own(weight_scales),
          .bias = own(bias.value_or(at::Tensor())),
          .post_ops = std::move(post_ops),
          .input = *of_input,
          .result = one(result),
          .operands = affines_of(names.prepack, operands)};
}

QuantizedOp::QuantizedOp(QuantizedSpec spec, int64_t weight_rank, int64_t output_channels)
    : FusedOp(spec.name, spec.post_ops, std::nullopt),
      spec_(checked(std::move(spec), weight_rank, output_channels)),
      weight_(std::make_shared<const QuantizedWeight>(spec_.weight)),
      scales_(spec_.weight_scales * spec_.input.scale),
      input_zero_point_(number(static_cast<double>(spec_.input.zero_point), at::kInt)) {
  spec_.weight.reset();
  if (spec_.result) {
    result_scale_ = number(spec_.result->scale, at::kFloat);
    result_zero_point_ = number(static_cast<double>(spec_.result->zero_point), at::kInt);
  }
}

QuantizedOp::QuantizedOp(const QuantizedOp& other)
    : FusedOp(other.name(), other.post_op_texts(), other.math_mode()),
      spec_(other.spec_),
      weight_(other.weight_),
      tiled_rows_(other.tiled_rows_),
      scales_(other.scales_),
      input_zero_point_(other.input_zero_point_),
      result_scale_(other.result_scale_),
      result_zero_point_(other.result_zero_point_) {}

at::Tensor QuantizedOp::run(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout) const {
  TORCH_CHECK(input.scalar_type() == at::kByte && is_plain_cpu(input), name(), ": expected a uint8 CPU input, got ",
              input.toString(), ".");
  check_input(input);
  check_operands(operands);
  for (size_t i = 0; i < operands.size(); ++i) {
    TORCH_CHECK(!spec_.operands[i] || operands[i].scalar_type() == at::kByte, name(), ": expected a uint8 operand ", i,
                ", got ", operands[i].toString(), ".");
  }
  if (const char* reason = reason_for_floats(input, operands, eager_layout)) {
    remember(reason);
  } else if (at::Tensor result = run_kernel(input, operands, eager_layout); result.defined()) {
    return result;
  }
  return run_in_floats(input, operands, eager_layout);
}

const char* QuantizedOp::reason_for_floats(const at::Tensor& input, const std::vector<at::Tensor>& operands,
                                           bool eager_layout) const {
  if (!isa::has_int8()) return "this CPU has no int8 instructions, or a cap forbids them";
  if (input.numel() == 0 || c10::multiply_integers(result_sizes(input)) == 0) return "there is nothing to compute";
  if (plain_weight().numel() / output_channels() > most_depth_of_bytes) return "its sums may not fit into 32 bits";
  if (std::any_of(operands.begin(), operands.end(), wants_gradient)) return "an operand requires a gradient";
  return own_reason_for_floats(input, eager_layout);
}

at::Tensor QuantizedOp::run_kernel(const at::Tensor& input, const std::vector<at::Tensor>& operands,
                                   bool eager_layout) const {
  static constexpr std::array list{&tiles, &over_operand, &activation_apart, &onednn};
  // Asked before fuse(), which holds the operand too.
  const bool may_accumulate = begins_with_addition() && is_dead(operands.front());
  const at::Tensor source = kernel_view(input);
  Call call{*this, source, operands, may_accumulate, fuse(input, operands, eager_layout)};
  const at::Tensor result = run_first(name(), list, call);
  return result.defined() ? finish(user_view(result, input, eager_layout), operands, call.fused.count) : result;
}

bool QuantizedOp::Call::overwrites_operand() const {
  return may_accumulate && layer.spec_.result && layer.spec_.operands.front() && fused.count > 0 &&
         fused.operands.front().const_data_ptr() == operands.front().const_data_ptr();
}

at::Tensor QuantizedOp::spread_over_weight(const at::Tensor& per_channel) const {
  std::vector<int64_t> shape(plain_weight().dim(), 1);
  shape[0] = -1;
  return per_channel.view(shape);
}

at::Tensor QuantizedOp::run_in_floats(const at::Tensor& input, const std::vector<at::Tensor>& operands,
                                      bool eager_layout) const {
  std::call_once(made_float_op_, [this] {
    Spec spec{.name = name(),
              .weight = plain_weight().to(at::kFloat) * spread_over_weight(spec_.weight_scales),
              .bias = spec_.bias,
              .post_ops = post_op_texts(),
              .folded_scale = {},
              .folded_shift = {},
              .math_mode = std::nullopt,
              .vanished = {}};
    float_op_ = float_op(spec);
  });
  // Autocast would compute in 16 bits what stands for 8.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  const at::Tensor y = float_op_->run(dequantize(input, spec_.input), as_floats(operands), eager_layout);
  return spec_.result ? quantize(y.to(at::kFloat), *spec_.result) : y;
}

std::vector<at::Tensor> QuantizedOp::as_floats(const std::vector<at::Tensor>& operands) const {
  std::vector<at::Tensor> floats = operands;
  for (size_t i = 0; i < floats.size(); ++i) {
    if (spec_.operands[i]) floats[i] = dequantize(floats[i], *spec_.operands[i]);
  }
  return floats;
}

at::Tensor QuantizedOp::finish(at::Tensor y, const std::vector<at::Tensor>& operands, size_t done) const {
  if (spec_.result && y.scalar_type() == at::kByte) return y;
  if (done < post_ops().size()) y = apply_rest(y, as_floats(operands), done);
  return spec_.result ? quantize(y.to(at::kFloat), *spec_.result) : y;
}

FusedPostOps QuantizedOp::fuse(const at::Tensor& input, const std::vector<at::Tensor>& operands,
                               bool eager_layout) const {
  const at::DimVector sizes = result_sizes(input);
  FusedPostOps fused;
  for (const PostOp& op : post_ops()) {
    if (!is_exact(op)) break;
    if (!op.kind->takes_operand()) {
      ++fused.count;
      continue;
    }
    const size_t i = fused.operands.size();
    const at::Tensor& operand = operands[i];
    const auto spread = spread_of(operand, sizes, channel_dimension(static_cast<int64_t>(sizes.size())));
    const bool adds = op.steps.back().algorithm == dnnl::algorithm::binary_add;
    const bool is_readable = spec_.operands[i] ? adds && spread == Spread::full
                                               : operand.scalar_type() == at::kFloat && is_plain_cpu(operand);
    const bool may_decide_layout = op.kind->name.starts_with("r") && spread == Spread::full;
    if (!spread || !is_readable || (may_decide_layout && !laid_out_as_result(operand, input, eager_layout))) {
      remember(c10::str("post-op ", op.kind->name, ": its operand has another dtype, shape or layout"));
      break;
    }
    ++fused.count;
    fused.spreads.push_back(*spread);
    fused.operands.push_back(spread == Spread::full ? kernel_view(operand) : operand.contiguous());
  }
  return fused;
}

void QuantizedOp::pack() const {
  if (!isa::has_int8()) {
    TORCH_WARN_ONCE(
        "ipex: expected a CPU with int8 instructions (AVX512_VNNI) for a quantised model, got one without, or with a "
        "cap. "
        "The model works but is slow: in float32 it is faster here.");
    return;
  }
  if (is_tiled()) {
    tiled_rows();
    return;
  }
  const bool quantizes = spec_.result && post_ops().empty();
  const memory::desc plain = weight_desc(plain_weight());
  const Making making;
  try {
    const memory::desc any(plain.get_dims(), memory::data_type::s8, memory::format_tag::any);
    const auto desc = any_primitive_desc(ordinary_input_sizes(), {}, quantizes, any);
    if (desc) weight_->in_layout(desc.weights_desc(), [&] { return plain; });
  } catch (const dnnl::error&) {
    // Calls will find out, and say why.
  }
}

State QuantizedOp::save(const Integers& integers) const {
  c10::Dict<std::string, at::Tensor> tensors;
  tensors.insert("weight", plain_weight());
  tensors.insert("weight_scales", spec_.weight_scales);
  if (spec_.bias.defined()) tensors.insert("bias", spec_.bias);
  OptionalAffines affines{spec_.input, spec_.result};
  affines.insert(affines.end(), spec_.operands.begin(), spec_.operands.end());
  tensors.insert("affines", at::tensor(numbers_of(affines), at::kDouble));
  c10::Dict<std::string, std::vector<int64_t>> fields;
  for (const auto& [key, values] : integers) fields.insert(key, values);
  return {version(), tensors, fields, post_op_texts()};
}

QuantizedSpec QuantizedOp::read(const char* name, const State& state) {
  TORCH_CHECK(std::get<0>(state) <= quantized_version, name, ": expected a saved format of version 1 to ",
              quantized_version, ", got ", std::get<0>(state),
              ". The model was written by a newer ipex: upgrade, or quantise it again.");
  const StateReader reader(name, state);
  const at::Tensor numbers = reader.tensor("affines");
  expect_tensor(name, "affines", numbers, any_size, at::kDouble);
  TORCH_CHECK(numbers.is_contiguous() && numbers.numel() >= 4, name, ": expected scales and zero points, got ",
              text_of(numbers), damaged);
  const auto* first = numbers.const_data_ptr<double>();
  const OptionalAffines affines = affines_of(name, {first, first + numbers.numel()});
  TORCH_CHECK(affines[0], name, ": expected a scale of the input, got 0", damaged);
  return {name,
          reader.tensor("weight"),
          reader.tensor("weight_scales"),
          reader.tensor("bias"),
          std::get<3>(state),
          *affines[0],
          affines[1],
          {affines.begin() + 2, affines.end()}};
}

Facts QuantizedOp::facts() const {
  const auto fact = [](const std::optional<Affine>& affine) {
    return affine ? c10::IValue(std::tuple(static_cast<double>(affine->scale), affine->zero_point)) : c10::IValue();
  };
  c10::impl::GenericList operands(c10::AnyType::get());
  for (const auto& affine : spec_.operands) operands.push_back(fact(affine));
  Facts facts{name(),
              {{"weight", plain_weight().sizes()},
               {"dtype", "int8"},
               {"bias", bias().defined()},
               {"post_ops", post_op_texts()},
               {"input", fact(spec_.input)},
               {"result", fact(spec_.result)},
               {"operands", operands}}};
  facts.add_if_any("packed", weight_->stored().describe());
  return facts;
}

}  // namespace ipex::runtime
