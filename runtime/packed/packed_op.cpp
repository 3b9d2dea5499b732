#include "packed/packed_op.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <algorithm>

#include "packed/dead_operand.h"
#include "packed/expect_tensor.h"
#include "packed/memory_format.h"

namespace ipex::runtime {
namespace {

const Spec& checked(const Spec& spec, int64_t weight_rank, int64_t output_channels) {
  const auto& [name, weight, bias, post_ops, folded_scale, folded_shift, math_mode, vanished, widens, needs_batch,
               is_sum, adds_input] = spec;
  expect_tensor(name, "weight", weight, at::DimVector(weight_rank, any_size), packable_dtypes);
  std::vector<at::ScalarType> of_bias{at::kFloat};
  if (weight.scalar_type() != at::kFloat) of_bias.push_back(weight.scalar_type());
  expect_tensor_if_any(name, "bias", bias, output_channels, of_bias);
  expect_tensor_if_any(name, "folded_scale", folded_scale, output_channels);
  expect_tensor_if_any(name, "folded_shift", folded_shift, output_channels);
  TORCH_CHECK(folded_scale.defined() == folded_shift.defined() && (bias.defined() || !folded_scale.defined()), name,
              ": expected folded_scale, folded_shift and bias together, got some of them", damaged);
  if (vanished.defined()) {
    const int64_t count = folded_scale.defined() ? folded_scale.abs().lt(least_scale).sum().item<int64_t>() : 0;
    expect_tensor(name, "vanished", vanished, {count, weight.numel() / output_channels + 1});
  }
  return spec;
}

PackedWeight::Recipe recipe_of(const Spec& spec, const std::vector<int64_t>& layout_depends_on) {
  PackedWeight::Recipe recipe = layout_depends_on;
  // -1 is none: the mode of the process does not change how a weight is packed.
  recipe.push_back(spec.math_mode ? static_cast<int64_t>(*spec.math_mode) : -1);
  recipe.push_back(spec.bias.defined() ? static_cast<int64_t>(spec.bias.scalar_type()) : -1);
  return recipe;
}

}  // namespace

State save(const Spec& spec, const Integers& integers) {
  c10::Dict<std::string, std::vector<int64_t>> fields;
  for (const auto& [name, values] : integers) fields.insert(name, values);
  c10::Dict<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : {std::pair{"weight", spec.weight},
                                     {"bias", spec.bias},
                                     {"folded_scale", spec.folded_scale},
                                     {"folded_shift", spec.folded_shift},
                                     {"vanished", spec.vanished}}) {
    if (tensor.defined()) tensors.insert(name, tensor);
  }
  if (spec.widens) fields.insert("widens", std::vector<int64_t>{1});
  if (spec.needs_batch) fields.insert("needs_batch", std::vector<int64_t>{1});
  if (spec.is_sum) fields.insert("is_sum", std::vector<int64_t>{1});
  if (spec.adds_input) fields.insert("adds_input", std::vector<int64_t>{1});
  if (spec.math_mode) fields.insert("math_mode", std::vector{static_cast<int64_t>(*spec.math_mode)});
  const bool is_16_bit = spec.weight.defined() && spec.weight.scalar_type() != at::kFloat;
  const bool is_new = spec.vanished.defined() || spec.widens;
  return {spec.adds_input                   ? 7
          : spec.needs_batch || spec.is_sum ? 6
          : is_new                          ? 4
          : is_16_bit                       ? 3
          : spec.math_mode                  ? 2
                                            : 1,
          tensors, fields, spec.post_ops};
}

StateReader::StateReader(const char* name, const State& state) : name_(name), state_(state) {
  const int64_t version = std::get<0>(state);
  TORCH_CHECK(version >= 1 && version <= format_version, name, ": expected a saved format of version 1 to ",
              format_version, ", got ", version,
              ". The model was written by a newer ipex: upgrade, or optimise it again.");
  for (const auto& entry : std::get<1>(state)) {
    const at::Tensor& tensor = entry.value();
    TORCH_CHECK(!tensor.defined() || !has_plain_memory(tensor) || has_all_its_memory(tensor), name,
                ": expected a tensor '", entry.key(), "' that lies inside of its storage, got sizes ", tensor.sizes(),
                ", strides ", tensor.strides(), " and offset ", tensor.storage_offset(), " in ",
                tensor.storage().nbytes(), " bytes", damaged);
  }
}

at::Tensor StateReader::tensor(const char* key) const {
  const auto& tensors = std::get<1>(state_);
  return tensors.contains(key) ? tensors.at(key) : at::Tensor();
}

Spec StateReader::spec() const {
  return {name_,
          tensor("weight"),
          tensor("bias"),
          std::get<3>(state_),
          tensor("folded_scale"),
          tensor("folded_shift"),
          math_mode(),
          tensor("vanished"),
          std::get<2>(state_).contains("widens"),
          std::get<2>(state_).contains("needs_batch"),
          std::get<2>(state_).contains("is_sum"),
          std::get<2>(state_).contains("adds_input")};
}

PinnedMathMode StateReader::math_mode() const {
  if (!std::get<2>(state_).contains("math_mode")) return std::nullopt;
  return pinned_math_mode(name_, integers("math_mode", 1, 0)[0]);
}

std::vector<int64_t> StateReader::integers(const std::string& key, size_t count, int64_t minimum) const {
  const auto& fields = std::get<2>(state_);
  TORCH_CHECK(fields.contains(key), name_, ": expected a field '", key, "', got none", damaged);
  std::vector<int64_t> values = fields.at(key);
  TORCH_CHECK(
      values.size() == count && std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= minimum; }),
      name_, ": expected ", count, " integers of at least ", minimum, " in '", key, "', got ", values, damaged);
  return values;
}

PackedOp::PackedOp(const Spec& spec, int64_t weight_rank, int64_t output_channels,
                   const std::vector<int64_t>& layout_depends_on)
    : FusedOp(checked(spec, weight_rank, output_channels).name, spec.post_ops, spec.math_mode),
      weight_(PackedWeight::of(spec.weight, recipe_of(spec, layout_depends_on))),
      bias_(spec.bias.defined() ? spec.bias.detach().clone(at::MemoryFormat::Contiguous) : at::Tensor()),
      folded_scale_(spec.folded_scale),
      folded_shift_(spec.folded_shift),
      vanished_(spec.vanished),
      widens_(spec.widens),
      needs_batch_(spec.needs_batch),
      is_sum_(spec.is_sum),
      adds_input_(spec.adds_input) {}

PackedOp::PackedOp(const PackedOp& other)
    : FusedOp(other.name(), other.post_op_texts(), other.math_mode()),
      weight_(other.weight_),
      bias_(other.bias_),
      folded_scale_(other.folded_scale_),
      folded_shift_(other.folded_shift_),
      vanished_(other.vanished_),
      widens_(other.widens_),
      needs_batch_(other.needs_batch_),
      is_sum_(other.is_sum_),
      adds_input_(other.adds_input_) {}

at::Tensor PackedOp::run(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout) const {
  check_input(input);
  TORCH_CHECK(!needs_batch_ || input.dim() == batch_rank(), name(), ": expected an input of ", batch_rank(),
              " dimensions, got ", input.sizes(), ". Give it a batch.");
  check_operands(operands);
  at::Tensor result;
  size_t done = 0;
  if (const char* reason = reason_for_aten(input, eager_layout)) {
    remember(reason);
  } else if (computes_in_float()) {
    result = run_in_float(input, operands, eager_layout, done);
  } else {
    result = run_primitive(input, operands, eager_layout, done);
  }
  if (!result.defined()) result = run_reference(input);

  return apply_rest(result, operands, done);
}

size_t PackedOp::widen(const std::vector<at::Tensor>& operands, std::vector<at::Tensor>& wide) const {
  size_t count = 0;
  for (; count < post_ops().size(); ++count) {
    if (!post_ops()[count].kind->takes_operand()) continue;
    const at::Tensor& operand = operands[wide.size()];
    if (operand.scalar_type() != dtype() || !is_plain_cpu(operand) || wants_gradient(operand)) {
      const bool has_dtype = operand.scalar_type() == dtype() && is_plain_cpu(operand);
      const std::string reason = has_dtype ? "requires a gradient" : "is not a " + name_of(dtype()) + " CPU tensor";
      remember(c10::str("post-op ", post_ops()[count].kind->name, ": its operand ", reason));
      break;
    }
    wide.push_back(converted(operand, at::kFloat));
  }
  return count;
}

c10::intrusive_ptr<PackedOp> PackedOp::in_float(size_t post_op_count) const {
  return *in_float_.get(PrimitiveKey{static_cast<int64_t>(post_op_count)}, [&] {
    std::vector<std::string> texts = post_op_texts();
    texts.resize(post_op_count);
    const at::Tensor bias = bias_.defined() ? bias_.to(at::kFloat) : bias_;
    return with({name(), plain_weight().to(at::kFloat), bias, std::move(texts), folded_scale_, folded_shift_,
                 FP32MathMode::FP32, vanished_, /*widens=*/false, needs_batch_, is_sum_, /*adds_input=*/false});
  });
}

at::Tensor PackedOp::run_in_float(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout,
                                  size_t& done) const {
  std::vector<at::Tensor> wide;
  done = widen(operands, wide);
  return converted(in_float(done)->run(converted(input, at::kFloat), wide, eager_layout), dtype());
}

class PackedOp::CallResult final : public FusedOp::Result {
 public:
  CallResult(const PackedOp& op, const at::Tensor& input, bool eager_layout)
      : op_(op), input_(input), eager_layout_(eager_layout), sizes_(op.result_sizes(input)) {}

  at::ScalarType dtype() const override { return op_.dtype(); }
  at::IntArrayRef sizes() const override { return sizes_; }
  int64_t channel_dimension() const override { return op_.channel_dimension(static_cast<int64_t>(sizes_.size())); }
  bool is_laid_out_like(const at::Tensor& tensor) const override {
    return op_.laid_out_as_result(tensor, input_, eager_layout_);
  }
  at::Tensor kernel_view(const at::Tensor& tensor) const override { return op_.kernel_view(tensor); }

 private:
  const PackedOp& op_;
  const at::Tensor& input_;
  bool eager_layout_;
  at::DimVector sizes_;
};

at::Tensor PackedOp::run_primitive(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout,
                                   size_t& done) const {
  const bool may_accumulate = may_write_over(operands);
  if (at::Tensor result = run_own_kernel(input, operands, may_accumulate, eager_layout, done); result.defined()) {
    return result;
  }
  const at::Tensor source = kernel_source(input);
  FusedPostOps fused = fuse_into_result(input, operands, eager_layout);
  if (may_accumulate && adds_in_place(fused, operands.front())) {
    if (at::Tensor result = accumulate(source, operands.front(), fused); result.defined()) {
      done = fused.count;
      return user_view(result, input, eager_layout);
    }
  }
  std::shared_ptr<const Prepared> prepared = prepare(source, fused);
  if (!prepared && fused.count > 0) {
    fused = {};
    prepared = prepare(source, fused);
    if (prepared) remember("oneDNN can't apply these post-ops on this CPU");
  }
  if (!prepared) {
    remember(c10::str("oneDNN has no implementation for an input of ", input.sizes(), " on this CPU"));
    return {};
  }
  at::Tensor result = allocate(source);
  if (const Failure failure = prepared->run(source, *blocked_weight(), bias_, result, fused.operands)) {
    remember(c10::str("oneDNN failed: ", *failure));
    return {};
  }
  done = fused.count;
  return user_view(result, input, eager_layout);
}

at::Tensor PackedOp::accumulate(const at::Tensor& source, const at::Tensor& dead, FusedPostOps fused) const {
  const at::Tensor seen = fused.operands.front();
  fused.accumulates = true;
  fused.spreads.erase(fused.spreads.begin());
  fused.operands.erase(fused.operands.begin());
  const std::shared_ptr<const Prepared> prepared = prepare(source, fused);
  if (!prepared) return {};
  at::Tensor result = in_memory_of(dead, seen.sizes(), kernel_format());
  const Failure failure = prepared->run(source, *blocked_weight(), bias_, result, fused.operands);
  TORCH_CHECK(!failure, name(), ": oneDNN failed, and may have overwritten an operand by then: ", *failure);
  return result;
}

FusedPostOps PackedOp::fuse_into_result(const at::Tensor& input, const std::vector<at::Tensor>& operands,
                                        bool eager_layout, bool (*applies)(const PostOp&)) const {
  return fuse(operands, CallResult(*this, input, eager_layout), applies);
}

std::shared_ptr<const Prepared> PackedOp::prepare(const at::Tensor& source, const FusedPostOps& fused) const {
  const at::DimVector sizes = kernel_sizes(source);
  return prepared(dtype(), PrimitiveKey(sizes), fused, [&](FP32MathMode mode) -> std::optional<Prepared> {
    // With the weight as it is packed or, where no kernel takes that, as one wants it.
    for (const dnnl::memory::desc& weight_desc : {blocked_weight()->desc(), any_weight_desc()}) {
      auto desc = primitive_desc({sizes.begin(), sizes.end()}, weight_desc, fused, mode);
      if (!desc || !skip_reference_implementations(desc)) continue;
      // Accumulating is not worth a second copy of the weight.
      if (!fused.accumulates || desc.weights_desc() == blocked_weight()->desc()) return Prepared(desc, bias_.defined());
    }
    return std::nullopt;
  });
}

std::pair<at::Tensor, at::Tensor> PackedOp::unfolded() const {
  at::Tensor weight = divided(plain_weight().to(at::kFloat), folded_scale_);
  at::Tensor bias = (bias_.to(at::kFloat) - folded_shift_) / folded_scale_;
  if (vanished_.defined()) {
    const at::Tensor channels = folded_scale_.abs().lt(least_scale).nonzero().flatten();
    std::vector<int64_t> sizes = weight.sizes().vec();
    sizes[0] = channels.numel();
    const int64_t width = vanished_.size(1) - 1;
    weight.index_copy_(0, channels, vanished_.narrow(1, 0, width).reshape(sizes));
    bias.index_copy_(0, channels, vanished_.select(1, width));
  }
  return {weight, bias};
}

at::Tensor PackedOp::run_reference(const at::Tensor& input) const {
  // Where aten refuses the dtype of the input, it does so with the batch_norm still in the weight.
  const bool is_refused = input.scalar_type() != dtype() && !at::autocast::is_autocast_enabled(at::kCPU);
  if (!is_folded_for_another_rank(input.dim()) || is_refused) {
    // Autocast gave 16 bits to an op of float32, which was added to something that it leaves alone: of another dtype, and so
    // the sum is of float32. (An op of 16 bits has folded what had 16 bits too.)
    const bool is_autocast = at::autocast::is_autocast_enabled(at::kCPU);
    const bool is_widened =
        is_autocast && (widens_ || (adds_input_ && input.scalar_type() != at::autocast::get_autocast_dtype(at::kCPU)));
    if (is_widened && dtype() == at::kFloat) {
      const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
      return run_reference(at::isReducedFloatingType(input.scalar_type()) ? input.to(at::kFloat) : input);
    }
    // aten wants a bias of the weight's dtype.
    at::Tensor y = reference(input, plain_weight(), bias_.defined() ? bias_.to(dtype()) : bias_);
    // A contiguous image of one pixel may have strides of the convolution; an op after it gives the ordinary ones.
    if (follows_anchor() && y.is_contiguous() && y.numel() > 0) y = y.view(-1).view(y.sizes());
    return y;
  }
  // Here dimension 1, batch_norm's channel, is not the dimension that the weight was folded along. A 16-bit one is taken
  // out in float32.
  const bool is_16_bit = dtype() != at::kFloat;
  const auto [weight, bias] = unfolded();
  const at::Tensor y = reference(is_16_bit ? input.to(at::kFloat) : input, weight, bias);
  if (y.numel() == 0) return is_16_bit ? y.to(dtype()) : y;  // aten looks no further
  TORCH_CHECK(y.dim() >= 2 && y.size(1) == folded_scale_.size(0), name(), ": expected ", folded_scale_.size(0),
              " channels in dimension 1 for its batch_norm, got ", y.sizes(), ".");
  std::vector<int64_t> along_input(y.dim(), 1);
  along_input[1] = -1;
  const at::Tensor result = y * folded_scale_.view(along_input) + folded_shift_.view(along_input);
  return result.to(is_16_bit ? dtype() : y.scalar_type());  // autocast may have given y 16 bits
}

const char* PackedOp::reason_for_aten(const at::Tensor& input, bool eager_layout) const {
  if (input.scalar_type() != dtype() || !is_plain_cpu(input)) {
    return dtype() == at::kFloat      ? "the input is not a float32 CPU tensor"
           : dtype() == at::kBFloat16 ? "the input is not a bfloat16 CPU tensor"
                                      : "the input is not a float16 CPU tensor";
  }
  if (wants_gradient(input)) return "the input requires a gradient";
  if (c10::multiply_integers(result_sizes(input)) == 0 || input.numel() == 0) return "there is nothing to compute";
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (is_folded_for_another_rank(input.dim())) return "a batch_norm was folded that is another one for this rank";
  if (!computes_in_float() && !blocked_weight()) {
    const char* reason = reason_against_dtype(dtype());
    return reason ? reason : "oneDNN can't pack this weight on this CPU";
  }
  return own_reason_for_aten(input, eager_layout);
}

void PackedOp::ensure_packed() const { blocked_weight(); }

Spec PackedOp::spec() const {
  const at::Tensor plain = weight_->plain_to_save([this](at::Tensor& weight) { return pack(weight); });
  return {name(),      plain,     bias_,   post_op_texts(), folded_scale_, folded_shift_,
          math_mode(), vanished_, widens_, needs_batch_,    is_sum_,       adds_input_};
}

Facts PackedOp::facts() const {
  Facts facts{name(),
              {{"weight", weight_sizes()},
               {"dtype", name_of(dtype())},
               {"bias", bias_.defined()},
               {"post_ops", post_op_texts()},
               {"math_mode", runtime::describe(math_mode())}}};
  facts.add(copies());
  facts.add_if_any("packed", weight_->stored().describe());
  return facts;
}

}  // namespace ipex::runtime
