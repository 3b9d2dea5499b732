#include "ops/quantized/quantized_op.h"

#include <ATen/ATen.h>

#include "isa/isa.h"
#include "kernels/bytes_product.h"
#include "kernels/kernels.h"
#include "packed/dead_operand.h"
#include "packed/expect_tensor.h"
#include "threads/parallel.h"
#include "threads/thread_count.h"

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
  } else if (at::Tensor result = run_primitive(input, operands, eager_layout); result.defined()) {
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

at::Tensor QuantizedOp::run_primitive(const at::Tensor& input, const std::vector<at::Tensor>& operands,
                                      bool eager_layout) const {
  // Asked before fuse(), which holds the operand too.
  const bool may_accumulate = begins_with_addition() && is_dead(operands.front());
  const at::Tensor source = kernel_view(input);
  FusedPostOps fused = fuse(input, operands, eager_layout);
  if (at::Tensor result = multiply_by_tiles(source, fused, may_accumulate ? &operands.front() : nullptr);
      result.defined()) {
    return user_view(result, input, eager_layout);
  }
  if (may_accumulate && fused.count > 0) {
    if (at::Tensor result = accumulate(source, operands.front(), fused); result.defined()) {
      return user_view(result, input, eager_layout);
    }
  }
  if (at::Tensor result = activate_apart(source, fused); result.defined()) {
    return user_view(result, input, eager_layout);
  }
  const auto quantizes = [&] { return spec_.result && fused.count == post_ops().size(); };
  std::shared_ptr<const Prepared> prepared = prepare(source, fused, quantizes());
  if (!prepared && fused.count > 0) {
    fused = {};
    prepared = prepare(source, fused, quantizes());
    if (prepared) remember("oneDNN can't apply these post-ops on this CPU");
  }
  if (!prepared) {
    remember(c10::str("oneDNN has no int8 implementation for an input of ", input.sizes(), " on this CPU"));
    return {};
  }
  const at::Tensor result = allocate(source, quantizes() ? at::kByte : at::kFloat);
  if (const Failure failure = prepared->run(source, weight_for(*prepared), bias(), result, fused.operands)) {
    remember(c10::str("oneDNN failed: ", *failure));
    return {};
  }
  return finish(user_view(result, input, eager_layout), operands, fused.count, quantizes());
}

namespace {

// Which of them oneDNN takes so long for that floats between are worth it.
bool is_slow_of_onednn(SlowActivation activation) {
  return activation == SlowActivation::silu || activation == SlowActivation::sigmoid;
}

// Some rows of what kernel_view gives, as the same kind of tensor.
at::Tensor rows_of(const at::Tensor& source, int64_t width, int64_t first, int64_t count) {
  if (source.dim() != 4) return at::as_strided(source, {count, width}, {width, 1}, first * width);
  return at::as_strided(source, {1, width, 1, count}, {count * width, 1, count * width, width}, first * width);
}

}  // namespace

bool QuantizedOp::is_tiled() const {
  const int64_t inputs = windows() ? windows()->depth() : multiplies_rows() ? plain_weight().size(1) : 0;
  return inputs > 0 && (tiled_rows_->peek() || TiledRows::take(inputs, spec_.result, post_ops(), spec_.operands));
}

const TiledRows& QuantizedOp::tiled_rows() const {
  return *tiled_rows_->get([this] {
    const at::Tensor codes = windows() ? windows()->codes(plain_weight()) : plain_weight().flatten(1).contiguous();
    const std::string layout = windows() ? windows()->layout() : std::string();
    const TiledRows::Layer layer{codes,       layout,       scales_,    spec_.bias,
                                 spec_.input, spec_.result, post_ops(), spec_.operands};
    return std::make_unique<const TiledRows>(layer, weight_->stored());
  });
}

at::Tensor QuantizedOp::multiply_by_tiles(const at::Tensor& source, const FusedPostOps& fused,
                                          const at::Tensor* dead) const {
  if (fused.count != post_ops().size() || !is_tiled()) return {};
  const bool overwrites = dead && spec_.result && adds_all_of(*dead, fused);
  const at::Tensor result = overwrites ? in_memory_of(*dead, fused.operands.front().sizes(), kernel_format())
                                       : allocate(source, spec_.result ? at::kByte : at::kFloat);
  if (windows()) {
    windows()->multiply(tiled_rows(), source, static_cast<uint8_t>(input_zero_point()), fused, result);
  } else {
    tiled_rows().multiply(source, fused, result);
  }
  return result;
}

at::Tensor QuantizedOp::activate_apart(const at::Tensor& source, FusedPostOps fused) const {
  const auto kernel = kernels().quantize.activate;
  if (!kernel || !spec_.result || fused.count == 0 || fused.count != post_ops().size()) return {};
  const auto activation = last_slow_activation(post_ops(), /*is_rounded=*/true);
  if (!activation || !is_slow_of_onednn(*activation)) return {};
  constexpr int64_t least_elements = 4096, elements_of_a_piece = 1 << 16, elements_worth_a_thread = 16384;
  if (c10::multiply_integers(kernel_result_sizes(kernel_sizes(source))) < least_elements) return {};
  const at::Tensor result = allocate(source, at::kByte);
  --fused.count;
  // So many rows that their floats fit the second cache.
  const int64_t columns = output_channels(), rows = result.numel() / columns;
  const bool cuts = multiplies_rows() && fused.operands.empty();
  const int64_t most = elements_of_a_piece * thread_count() / columns,
                pieces = cuts && most > 0 ? at::divup(rows, most) : 1;
  const int64_t rows_of_a_piece = at::divup(rows, pieces);
  const AffineRounding rounding(*spec_.result);
  for (int64_t first = 0; first < rows; first += rows_of_a_piece) {
    const int64_t count = std::min(rows_of_a_piece, rows - first);
    const at::Tensor piece = pieces == 1 ? source : rows_of(source, source.numel() / rows, first, count);
    const std::shared_ptr<const Prepared> prepared = prepare(piece, fused, /*quantizes=*/false);
    if (!prepared) return {};
    const at::Tensor floats = allocate(piece, at::kFloat);
    if (prepared->run(piece, weight_for(*prepared), bias(), floats, fused.operands)) return {};
    const float* x = floats.const_data_ptr<float>();
    uint8_t* numbers = result.mutable_data_ptr<uint8_t>() + first * columns;
    parallel_for(count * columns, elements_worth_a_thread, [&](int64_t begin, int64_t end) {
      kernel(*activation, x + begin, end - begin, rounding.inverse_scale, rounding.zero_point, numbers + begin);
    });
  }
  return result;
}

at::Tensor QuantizedOp::accumulate(const at::Tensor& source, const at::Tensor& dead, FusedPostOps fused) const {
  if (!spec_.result || fused.count != post_ops().size() || !adds_all_of(dead, fused)) return {};
  const at::Tensor seen = fused.operands.front();
  fused.accumulates = true;
  fused.spreads.erase(fused.spreads.begin());
  fused.operands.erase(fused.operands.begin());
  const std::shared_ptr<const Prepared> prepared = prepare(source, fused, /*quantizes=*/true);
  if (!prepared) return {};
  at::Tensor result = in_memory_of(dead, seen.sizes(), kernel_format());
  const Failure failure = prepared->run(source, weight_for(*prepared), bias(), result, fused.operands);
  TORCH_CHECK(!failure, name(), ": oneDNN failed, and may have overwritten an operand by then: ", *failure);
  return result;
}

bool QuantizedOp::adds_all_of(const at::Tensor& dead, const FusedPostOps& fused) const {
  return spec_.operands.front() && fused.operands.front().const_data_ptr() == dead.const_data_ptr();
}

at::Tensor QuantizedOp::spread_over_weight(const at::Tensor& per_channel) const {
  std::vector<int64_t> shape(plain_weight().dim(), 1);
  shape[0] = -1;
  return per_channel.view(shape);
}

at::Tensor QuantizedOp::weight_for(const Prepared& prepared) const {
  return weight_->in_layout(prepared.weights_desc(), [this] { return weight_desc(plain_weight()); });
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

at::Tensor QuantizedOp::finish(at::Tensor y, const std::vector<at::Tensor>& operands, size_t done,
                               bool is_quantized) const {
  if (is_quantized) return y;
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

std::shared_ptr<const Prepared> QuantizedOp::prepare(const at::Tensor& source, const FusedPostOps& fused,
                                                     bool quantizes) const {
  const memory::dims sizes = kernel_sizes(source);
  const auto make = [&](FP32MathMode) -> std::optional<Prepared> {
    std::vector<memory::desc> layouts = weight_->layouts();
    const memory::desc plain = weight_desc(plain_weight());
    layouts.emplace_back(plain.get_dims(), memory::data_type::s8, memory::format_tag::any);
    for (const memory::desc& layout : layouts) {
      if (const auto desc = any_primitive_desc(sizes, fused, quantizes, layout)) {
        return Prepared(desc, bias().defined(), constants(quantizes));
      }
    }
    return std::nullopt;
  };
  PrimitiveKey key(sizes.begin(), sizes.end());
  key.push_back(quantizes);
  return prepared(at::kByte, key, fused, make);
}

dnnl::primitive_desc QuantizedOp::any_primitive_desc(const memory::dims& source, const FusedPostOps& fused,
                                                     bool quantizes, const memory::desc& weight) const {
  const auto type = quantizes ? memory::data_type::u8 : memory::data_type::f32;
  const memory::desc result = result_desc(kernel_result_sizes(source), type);
  dnnl::primitive_desc desc = primitive_desc(source, weight, type, attributes(fused, result, quantizes));
  return desc && skip_reference_implementations(desc) ? desc : dnnl::primitive_desc();
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

dnnl::primitive_attr QuantizedOp::attributes(const FusedPostOps& fused, const memory::desc& result,
                                             bool quantizes) const {
  dnnl::primitive_attr attr = runtime::attributes(FP32MathMode::FP32);
  attr.set_scales_mask(DNNL_ARG_WEIGHTS, weight_scales_mask());
  if (spec_.input.zero_point != 0) attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
  if (quantizes) {
    attr.set_scales_mask(DNNL_ARG_DST, 0);
    if (spec_.result->zero_point != 0) attr.set_zero_points_mask(DNNL_ARG_DST, 0);
  }
  const auto channel = static_cast<int>(kernel_channel_dimension(result.get_ndims()));
  dnnl::post_ops list;
  size_t next = 0;
  for (size_t i = 0; i < fused.count; ++i) {
    for (const Step& step : post_ops()[i].steps) {
      if (!step.takes_operand()) {
        list.append_eltwise(step.algorithm, static_cast<float>(step.alpha), static_cast<float>(step.beta));
        continue;
      }
      const std::optional<Affine>& affine = spec_.operands[next];
      if (fused.accumulates && i == 0) {
        list.append_sum(static_cast<float>(affine->scale), static_cast<int32_t>(affine->zero_point),
                        memory::data_type::u8);
        ++next;
        continue;
      }
      const auto type = affine ? memory::data_type::u8 : memory::data_type::f32;
      const Spread spread = fused.spreads[next - size_t{fused.accumulates}];
      const memory::desc operand = operand_desc(spread, result, channel, type);
      ++next;
      if (affine) {  // the sum in units of the operand, and back
        const auto scale = static_cast<float>(affine->scale);
        list.append_eltwise(dnnl::algorithm::eltwise_linear, 1 / scale, static_cast<float>(-affine->zero_point));
        list.append_binary(step.algorithm, operand);
        list.append_eltwise(dnnl::algorithm::eltwise_linear, scale, 0);
      } else {
        list.append_binary(step.algorithm, operand);
      }
    }
  }
  attr.set_post_ops(list);
  return attr;
}

Prepared::Constants QuantizedOp::constants(bool quantizes) const {
  Prepared::Constants constants{{DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, scales_}};
  if (spec_.input.zero_point != 0) {
    constants.emplace_back(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, input_zero_point_);
  }
  if (quantizes) {
    constants.emplace_back(DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, result_scale_);
    if (spec_.result->zero_point != 0) {
      constants.emplace_back(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, result_zero_point_);
    }
  }
  return constants;
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
