// Normalisations of the last dimensions, in one pass over the rows.
//
//   ipex::add_layer_norm(a, b, normalized_shape, weight, bias, eps, keep_sum, in_place) -> (y, sum)
//     y = layer_norm(a + b). The sum is given back where the model needs it elsewhere, else it is undefined. In place of
//     a, dtype and shape of the sum are those of a; a itself is only read.
//   ipex::layer_norm(x, normalized_shape, weight, bias, eps) -> y
//     aten's, for a norm before which nothing is added.
//   ipex::add_layer_norm.bytes, ipex::layer_norm.bytes(.., scale, zero_point)
//     the same, with ipex::quantize(y, scale, zero_point) in the place of y: a row is rounded while it is near.
//   ipex::rms_norm(x, weight, eps, dtype, normalized_shape) -> y
//     y = weight * (x * rsqrt(mean(x ** 2) + eps)).to(dtype), or aten::rms_norm(x, ..) where there is a normalized_shape.
//
// The kernels take contiguous float32. All else, and whatever overflows on the way, is computed by the aten ops that
// the model spelled out. A profiler shows them, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "ops/quantized/affine.h"
#include "packed/call_conditions.h"
#include "threads/grain.h"

namespace ipex::runtime {
namespace {

// Calls moment = row(i) for each row on all threads. False when one of them is not finite: aten takes its sums in
// another order, so whether and where they overflow is for aten to say.
template <typename Row>
bool for_each_row(int64_t rows, int64_t width, Row&& row) {
  constexpr int64_t elements_worth_waking = 16384;
  std::atomic<bool> finite{true};
  at::parallel_for(0, rows, grain_of(rows, rows * width, elements_worth_waking), [&](int64_t begin, int64_t end) {
    bool all = true;
    for (int64_t i = begin; i < end; ++i) all &= std::isfinite(row(i));
    if (!all) finite = false;
  });
  return finite;
}

// The rows of a result: floats, or with an affine 8-bit numbers, each of which is made of a row of floats that a thread has.
class ResultRows {
 public:
  ResultRows(const at::Tensor& like, int64_t width, const std::optional<Affine>& affine)
      : tensor_(empty_result(like.sizes(), at::TensorOptions(affine ? at::kByte : at::kFloat))), width_(width) {
    if (affine) rounding_.emplace(*affine);
  }

  const at::Tensor& tensor() const { return tensor_; }

  // Row `i`, of which compute(floats) makes the floats.
  template <typename Compute>
  float write(int64_t i, Compute&& compute) const {
    if (!rounding_) return compute(tensor_.mutable_data_ptr<float>() + i * width_);
    thread_local std::vector<float> floats;
    floats.resize(static_cast<size_t>(width_));
    const float moment = compute(floats.data());
    kernels().quantize.quantize(floats.data(), 1, width_, nullptr, rounding_->inverse_scale, rounding_->zero_point,
                                tensor_.mutable_data_ptr<uint8_t>() + i * width_);
    return moment;
  }

 private:
  at::Tensor tensor_;
  int64_t width_;
  std::optional<AffineRounding> rounding_;
};

at::Tensor rounded(const at::Tensor& y, const std::optional<Affine>& affine) {
  return affine ? quantize(y, *affine) : y;
}

const char* reason_for_aten(const at::Tensor& tensor) {
  if (!is_plain_cpu_float(tensor)) return "an operand is not a float32 CPU tensor";
  if (!tensor.is_contiguous()) return "an operand is not contiguous";
  if (wants_gradient(tensor)) return "an operand requires a gradient";
  return nullptr;
}

const char* reason_for_aten(std::initializer_list<at::Tensor> operands) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  for (const at::Tensor& operand : operands) {
    if (!operand.defined()) return "it has no weight or no bias";
    if (const char* reason = reason_for_aten(operand)) return reason;
  }
  return nullptr;
}

// Whether the last dimensions of `x` are those of the weight, and there is something to normalise.
bool ends_in(const at::Tensor& x, at::IntArrayRef normalized_shape) {
  return x.numel() > 0 && x.sizes().size() >= normalized_shape.size() &&
         x.sizes().slice(x.sizes().size() - normalized_shape.size()) == normalized_shape;
}

// Whether `small` is `large` but for leading dimensions that it lacks or has once.
bool repeats_in(const at::Tensor& small, const at::Tensor& large) {
  const auto first = std::find_if(small.sizes().begin(), small.sizes().end(), [](int64_t size) { return size != 1; });
  const size_t kept = static_cast<size_t>(small.sizes().end() - first);
  return small.dim() <= large.dim() &&
         large.sizes().slice(large.sizes().size() - kept) == small.sizes().slice(small.sizes().size() - kept);
}

using OptionalTensor = std::optional<at::Tensor>;

std::tuple<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& a, const at::Tensor& b,
                                                  at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                                                  const OptionalTensor& bias, double eps, bool keep_sum, bool in_place,
                                                  const std::optional<Affine>& affine) {
  const at::Tensor scale = weight.value_or(at::Tensor()), shift = bias.value_or(at::Tensor());
  const char* reason = reason_for_aten({a, b, scale, shift});
  const bool a_repeats = a.numel() < b.numel();
  const at::Tensor &large = a_repeats ? b : a, &small = a_repeats ? a : b;
  if (!reason && (!repeats_in(small, large) || (in_place && a.sizes() != large.sizes()))) {
    reason = "an operand is broadcast";
  }
  if (!reason && (!ends_in(large, normalized_shape) || scale.sizes() != normalized_shape ||
                  shift.sizes() != normalized_shape || small.numel() < scale.numel())) {
    reason = "the shapes do not fit";
  }
  if (!reason) {
    const int64_t width = scale.numel(), period = small.numel() / width;
    const ResultRows y(large, width, affine);
    const at::Tensor sum = keep_sum ? empty_result(large.sizes(), large.options()) : at::Tensor();
    const float *from_large = large.const_data_ptr<float>(), *from_small = small.const_data_ptr<float>();
    const float *from_scale = scale.const_data_ptr<float>(), *from_shift = shift.const_data_ptr<float>();
    float* to_sum = keep_sum ? sum.mutable_data_ptr<float>() : nullptr;
    const auto add_layer_norm_row = kernels().norms.add_layer_norm_row;
    const bool finite = for_each_row(large.numel() / width, width, [&](int64_t row) {
      const int64_t at = row * width;
      return y.write(row, [&](float* to) {
        return add_layer_norm_row(from_large + at, from_small + row % period * width, from_scale, from_shift,
                                  static_cast<float>(eps), width, to_sum ? to_sum + at : to, to);
      });
    });
    if (finite) return {y.tensor(), sum};
    reason = "a row is not finite";
  }
  RECORD_FUNCTION(c10::str("ipex::add_layer_norm in aten: ", reason), {});
  const at::Tensor sum = in_place ? a.clone().add_(b) : at::add(a, b);
  return {rounded(at::layer_norm(sum, normalized_shape, weight, bias, eps), affine), keep_sum ? sum : at::Tensor()};
}

at::Tensor layer_norm(const at::Tensor& x, at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                      const OptionalTensor& bias, double eps, const std::optional<Affine>& affine) {
  const char* reason = at::autocast::is_autocast_enabled(at::kCPU) ? "autocast is on" : reason_for_aten(x);
  for (const OptionalTensor* vector : {&weight, &bias}) {
    if (reason || !*vector) continue;
    reason = reason_for_aten(**vector);
    if (!reason && (*vector)->sizes() != normalized_shape) reason = "the shapes do not fit";
  }
  if (!reason && !ends_in(x, normalized_shape)) reason = "the shapes do not fit";
  if (!reason) {
    const int64_t width = c10::multiply_integers(normalized_shape);
    const ResultRows y(x, width, affine);
    const float* from_x = x.const_data_ptr<float>();
    const float* from_weight = weight ? weight->const_data_ptr<float>() : nullptr;
    const float* from_bias = bias ? bias->const_data_ptr<float>() : nullptr;
    const auto layer_norm_row = kernels().norms.layer_norm_row;
    const bool finite = for_each_row(x.numel() / width, width, [&](int64_t row) {
      return y.write(row, [&](float* to) {
        return layer_norm_row(from_x + row * width, from_weight, from_bias, static_cast<float>(eps), width, to);
      });
    });
    if (finite) return y.tensor();
    reason = "a row is not finite";
  }
  RECORD_FUNCTION(c10::str("ipex::layer_norm in aten: ", reason), {});
  return rounded(at::layer_norm(x, normalized_shape, weight, bias, eps), affine);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, std::optional<at::ScalarType> dtype,
                    at::OptionalIntArrayRef normalized_shape) {
  const char* reason = reason_for_aten({x, weight});
  if (!reason && dtype.value_or(at::kFloat) != at::kFloat) reason = "the result is not float32";
  const bool last_dimension_only = !normalized_shape || *normalized_shape == weight.sizes();
  if (!reason && (weight.dim() != 1 || !ends_in(x, weight.sizes()) || !last_dimension_only)) {
    reason = "the shapes do not fit";
  }
  if (!reason) {
    const int64_t width = weight.numel();
    const at::Tensor y = empty_result(x.sizes(), x.options());
    const float *from_x = x.const_data_ptr<float>(), *from_weight = weight.const_data_ptr<float>();
    float* to_y = y.mutable_data_ptr<float>();
    const auto rms_norm_row = kernels().norms.rms_norm_row;
    const bool finite = for_each_row(x.numel() / width, width, [&](int64_t row) {
      const int64_t at = row * width;
      return rms_norm_row(from_x + at, from_weight, static_cast<float>(eps), width, to_y + at);
    });
    if (finite) return y;
    reason = "a row is not finite";
  }
  RECORD_FUNCTION(c10::str("ipex::rms_norm in aten: ", reason), {});
  if (normalized_shape) return at::rms_norm(x, *normalized_shape, weight, eps);
  const at::Tensor normalized = x * at::rsqrt(x.pow(2).mean(-1, /*keepdim=*/true) + eps);
  return weight * (dtype ? normalized.to(*dtype) : normalized);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.def(
      "add_layer_norm(Tensor a, Tensor b, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps, "
      "bool keep_sum, bool in_place=False) -> (Tensor, Tensor)",
      [](const at::Tensor& a, const at::Tensor& b, at::IntArrayRef shape, const OptionalTensor& weight,
         const OptionalTensor& bias, double eps, bool keep_sum,
         bool in_place) { return add_layer_norm(a, b, shape, weight, bias, eps, keep_sum, in_place, std::nullopt); });
  m.def(
      "add_layer_norm.bytes(Tensor a, Tensor b, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps, "
      "bool keep_sum, bool in_place, float scale, int zero_point) -> (Tensor, Tensor)",
      [](const at::Tensor& a, const at::Tensor& b, at::IntArrayRef shape, const OptionalTensor& weight,
         const OptionalTensor& bias, double eps, bool keep_sum, bool in_place, double scale, int64_t zero_point) {
        return add_layer_norm(a, b, shape, weight, bias, eps, keep_sum, in_place,
                              checked("ipex::add_layer_norm", {scale, zero_point}));
      });
  m.def("layer_norm(Tensor x, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor",
        [](const at::Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias,
           double eps) { return layer_norm(x, shape, weight, bias, eps, std::nullopt); });
  m.def(
      "layer_norm.bytes(Tensor x, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps, float scale, "
      "int zero_point) -> Tensor",
      [](const at::Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias,
         double eps, double scale, int64_t zero_point) {
        return layer_norm(x, shape, weight, bias, eps, checked("ipex::layer_norm", {scale, zero_point}));
      });
  m.def("rms_norm(Tensor x, Tensor weight, float eps, ScalarType? dtype, int[]? normalized_shape) -> Tensor", rms_norm);
}

}  // namespace
}  // namespace ipex::runtime
