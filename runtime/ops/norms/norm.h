// layer_norm or rms_norm of rows: what it computes of a row, and what aten computes in its place.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace ipex::runtime {

using OptionalTensor = std::optional<at::Tensor>;

// Null for a plain CPU tensor of float32 or 16 bits without a gradient; contiguous too, for the second.
const char* reason_for_aten_of_any_layout(const at::Tensor& tensor);
const char* reason_for_aten(const at::Tensor& tensor);

// Of one call, whose tensors outlive it.
class Norm {
 public:
  static Norm layer(at::IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias, double eps);
  // Without a shape as models spell it out: weight * (x * rsqrt(mean(x ** 2) + eps)).to(cast).
  static Norm rms(at::OptionalIntArrayRef shape, const OptionalTensor& weight, std::optional<double> eps,
                  std::optional<at::ScalarType> cast);

  const char* name() const { return is_rms_ ? "ipex::rms_norm" : "ipex::layer_norm"; }
  bool is_rms() const { return is_rms_; }
  // Whether aten has an op for it, which multiplies what is contiguous, in the memory format of its input.
  bool is_atens() const { return shape_.has_value(); }

  // What is normalised, the last dimensions of `x`.
  at::IntArrayRef shape(const at::Tensor& x) const;
  // Why no kernel takes it for rows of `x`, which stands for numbers of the dtype `given`. Null where one does.
  const char* reason_for_aten(const at::Tensor& x, at::ScalarType given) const;
  at::ScalarType result_dtype(at::ScalarType given) const;

  // The kernel, once it takes the rows.
  class Kernel {
   public:
    Kernel(const Norm& norm, int64_t width);

    // Both give the mean square of the row, which is not finite where aten's way of summing may overflow.
    float of_row(const float* x, float* y) const;
    // Of a + b, which goes to `sum`; that may be `y`.
    float of_sum(const float* a, const float* b, float* sum, float* y) const;
    // Of `count` rows of rms_norm that lie side by side, the numbers of each `stride` apart. The sum of all squares.
    float of_columns(const float* x, int64_t stride, int64_t count, float* y, int64_t y_stride) const;

   private:
    const bool is_rms_;
    const at::Tensor scale_, shift_;
    const float *from_scale_, *from_shift_;
    const float eps_;
    const int64_t width_;
  };

  at::Tensor in_aten(const at::Tensor& x) const;

 private:
  Norm(bool is_rms, at::OptionalIntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias,
       std::optional<double> eps, std::optional<at::ScalarType> cast)
      : is_rms_(is_rms), shape_(shape), weight_(weight), bias_(bias), eps_(eps), cast_(cast) {}

  const bool is_rms_;
  const at::OptionalIntArrayRef shape_;
  const OptionalTensor &weight_, &bias_;
  const std::optional<double> eps_;
  const std::optional<at::ScalarType> cast_;
};

}  // namespace ipex::runtime
