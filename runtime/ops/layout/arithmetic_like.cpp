// Arithmetic whose result has the dtype and shape of its first operand, as that of aten's ops in place has.
//
//   ipex::add_like(self, other, alpha), ipex::sub_like(self, other, alpha)
//   ipex::mul_like(self, other), ipex::div_like(self, other)
//   ipex::masked_fill_like(self, mask, value)
//
// What self.add_(other) would leave in self, in memory of its own.
//
//   ipex::in_common_dtype(factor, x, a, b) -> Tensor    the factor in the dtype that the other three promote to
//
// As ops of three tensors compute: addcmul of a float and two integers multiplies floats.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>
#include <torch/library.h>

#include <array>

#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/empty_like.h"

namespace ipex::runtime {
namespace {

using at::Tensor;

template <typename InPlace, typename Into>
Tensor like(const Tensor& self, const Tensor& other, InPlace&& in_place, Into&& into) {
  const bool is_plain = is_plain_cpu(self) && is_plain_cpu(other) && !wants_gradient(self) && !wants_gradient(other);
  const bool fits = at::is_expandable_to(other.sizes(), self.sizes());
  if (!is_plain || !fits) return in_place(self.clone());  // where it does not fit, aten says so
  Tensor result = empty_like_result(self);
  into(result);
  return result;
}

Tensor add_like(const Tensor& self, const Tensor& other, const at::Scalar& alpha) {
  return like(
      self, other, [&](Tensor y) { return y.add_(other, alpha); },
      [&](Tensor& result) { at::add_out(result, self, other, alpha); });
}

Tensor sub_like(const Tensor& self, const Tensor& other, const at::Scalar& alpha) {
  return like(
      self, other, [&](Tensor y) { return y.sub_(other, alpha); },
      [&](Tensor& result) { at::sub_out(result, self, other, alpha); });
}

Tensor mul_like(const Tensor& self, const Tensor& other) {
  return like(
      self, other, [&](Tensor y) { return y.mul_(other); }, [&](Tensor& result) { at::mul_out(result, self, other); });
}

Tensor div_like(const Tensor& self, const Tensor& other) {
  return like(
      self, other, [&](Tensor y) { return y.div_(other); }, [&](Tensor& result) { at::div_out(result, self, other); });
}

Tensor masked_fill_like(const Tensor& self, const Tensor& mask, const at::Scalar& value) {
  return self.clone().masked_fill_(mask, value);
}

Tensor in_common_dtype(const Tensor& factor, const Tensor& x, const Tensor& a, const Tensor& b) {
  const std::array all{x, a, b};
  return factor.to(at::native::result_type(at::TensorList(all)));
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "add_like(Tensor self, Tensor other, Scalar alpha) -> Tensor", add_like);
  define(m, "sub_like(Tensor self, Tensor other, Scalar alpha) -> Tensor", sub_like);
  define(m, "mul_like(Tensor self, Tensor other) -> Tensor", mul_like);
  define(m, "div_like(Tensor self, Tensor other) -> Tensor", div_like);
  define(m, "in_common_dtype(Tensor(a) factor, Tensor x, Tensor a, Tensor b) -> Tensor(a)", in_common_dtype);
  define(m, "masked_fill_like(Tensor self, Tensor mask, Scalar value) -> Tensor", masked_fill_like);
}

}  // namespace
}  // namespace ipex::runtime
