// The borders of what a float32 model computes in 16 bits.
//
//   ipex::lower_precision(x, dtype) -> Tensor     on the way in: float32, bfloat16 and float16 become dtype
//   ipex::restore_precision(y) -> Tensor          on the way out: bfloat16 and float16 become float32
//
// What has another dtype stays as it is, and meets the op, and the error, that it would have met in eager. Of 16 bits there
// are two, and a residual of the one beside a layer of the other is no error there: eager's layer is float32.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/layout/precision.h"
#include "packed/door.h"
#include "packed/float_rows.h"

namespace ipex::runtime {

at::Tensor lower_precision(const at::Tensor& x, at::ScalarType dtype) {
  return x.scalar_type() == at::kFloat || is_half(x.scalar_type()) ? x.to(dtype) : x;
}

at::Tensor restore_precision(const at::Tensor& y) { return is_half(y.scalar_type()) ? y.to(at::kFloat) : y; }

namespace {

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "lower_precision(Tensor(a) x, ScalarType dtype) -> Tensor(a)", lower_precision);
  define(m, "restore_precision(Tensor(a) y) -> Tensor(a)", restore_precision);
}

}  // namespace
}  // namespace ipex::runtime
