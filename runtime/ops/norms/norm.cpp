#include "ops/norms/norm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "kernels/kernels.h"
#include "packed/call_conditions.h"
#include "packed/float_rows.h"

namespace ipex::runtime {
namespace {

at::Tensor in_floats(const OptionalTensor& vector) { return vector ? runtime::in_floats(*vector) : at::Tensor(); }

const float* data_of(const at::Tensor& vector) { return vector.defined() ? vector.const_data_ptr<float>() : nullptr; }

// Whether the last dimensions of `x` are these, and there is something to normalise.
bool ends_in(const at::Tensor& x, at::IntArrayRef shape) {
  return x.numel() > 0 && x.sizes().size() >= shape.size() && x.sizes().slice(x.sizes().size() - shape.size()) == shape;
}

}  // namespace

const char* reason_for_aten_of_any_layout(const at::Tensor& tensor) {
  if (!has_float_rows(tensor)) return "an operand is no CPU tensor of float32 or 16 bits";
  if (wants_gradient(tensor)) return "an operand requires a gradient";
  return nullptr;
}

const char* reason_for_aten(const at::Tensor& tensor) {
  const char* reason = reason_for_aten_of_any_layout(tensor);
  return reason || tensor.is_contiguous() ? reason : "an operand is not contiguous";
}

Norm Norm::layer(at::IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  return {/*is_rms=*/false, shape, weight, bias, eps, std::nullopt};
}

Norm Norm::rms(at::OptionalIntArrayRef shape, const OptionalTensor& weight, std::optional<double> eps,
               std::optional<at::ScalarType> cast) {
  static const OptionalTensor no_bias;
  return {/*is_rms=*/true, shape, weight, no_bias, eps, cast};
}

at::IntArrayRef Norm::shape(const at::Tensor& x) const {
  if (shape_) return *shape_;
  return weight_ ? weight_->sizes() : x.sizes().slice(static_cast<size_t>(std::max<int64_t>(x.dim() - 1, 0)));
}

const char* Norm::reason_for_aten(const at::Tensor& x, at::ScalarType given) const {
  const at::IntArrayRef normalized = shape(x);
  std::optional<at::ScalarType> dtype;
  for (const OptionalTensor* given_vector : {&weight_, &bias_}) {
    if (!*given_vector || !(*given_vector)->defined()) continue;
    const at::Tensor& vector = **given_vector;
    if (const char* reason = runtime::reason_for_aten(vector)) return reason;
    if (vector.sizes() != normalized) return "the shapes do not fit";
    const at::ScalarType own = vector.scalar_type();
    if (own != dtype.value_or(own)) return "its weight and bias are of two dtypes";
    dtype = own;
    if (!is_rms_ && own != at::kFloat && own != x.scalar_type()) return "its weight is of another dtype";
  }
  if (!ends_in(x, normalized)) return "the shapes do not fit";
  if (!is_rms_) return nullptr;
  if (normalized.size() != 1) return "the shapes do not fit";
  if (!eps_ && given != at::kFloat) return "its eps is that of 16 bits";
  if (shape_ && weight_ && weight_->scalar_type() != given) return "its weight is of another dtype";
  // Float32 shows the roundings on the way, which we don't make.
  const bool is_all_float = given == at::kFloat && cast_.value_or(at::kFloat) == at::kFloat;
  const at::ScalarType result = result_dtype(given);
  return is_half(result) || (result == at::kFloat && is_all_float) ? nullptr : "it is rounded on the way";
}

at::ScalarType Norm::result_dtype(at::ScalarType given) const {
  if (!is_rms_) return given;
  const at::ScalarType cast = cast_.value_or(given);
  return weight_ ? at::promote_types(weight_->scalar_type(), cast) : cast;
}

at::Tensor Norm::in_aten(const at::Tensor& x) const {
  if (!is_rms_) return at::layer_norm(x, *shape_, weight_, bias_, *eps_);
  if (shape_) return at::rms_norm(x, *shape_, weight_, eps_);
  const at::Tensor normalized = x * at::rsqrt(x.pow(2).mean(-1, /*keepdim=*/true) + eps_.value());
  const at::Tensor cast = cast_ ? normalized.to(*cast_) : normalized;
  return weight_ ? *weight_ * cast : cast;
}

Norm::Kernel::Kernel(const Norm& norm, int64_t width)
    : is_rms_(norm.is_rms_),
      scale_(in_floats(norm.weight_)),
      shift_(in_floats(norm.bias_)),
      from_scale_(data_of(scale_)),
      from_shift_(data_of(shift_)),
      eps_(static_cast<float>(norm.eps_.value_or(std::numeric_limits<float>::epsilon()))),
      width_(width) {}

float Norm::Kernel::of_row(const float* x, float* y) const {
  const NormKernels& norms = kernels().norms;
  return is_rms_ ? norms.rms_norm_row(x, from_scale_, eps_, width_, y)
                 : norms.layer_norm_row(x, from_scale_, from_shift_, eps_, width_, y);
}

float Norm::Kernel::of_sum(const float* a, const float* b, float* sum, float* y) const {
  const NormKernels& norms = kernels().norms;
  if (!is_rms_) return norms.add_layer_norm_row(a, b, from_scale_, from_shift_, eps_, width_, sum, y);
  norms.add_row(a, b, width_, sum);
  return of_row(sum, y);
}

float Norm::Kernel::of_columns(const float* x, int64_t stride, int64_t count, float* y, int64_t y_stride) const {
  return kernels().norms.rms_norm_columns(x, stride, from_scale_, eps_, width_, count, y, y_stride);
}

}  // namespace ipex::runtime
