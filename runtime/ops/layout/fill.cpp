// Tensors of one number, in memory that is kept between calls (result_memory.h).
//
//   ipex::new_full(x, size, value) -> Tensor    as aten::new_full: contiguous, of x's dtype
//   ipex::full_like(x, value) -> Tensor         as aten::full_like: of x's dtype and strides
//
// A model that fills large tensors, and then writes its pieces, would get their pages from the system at every call.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/empty_like.h"

namespace ipex::runtime {
namespace {

at::Tensor new_full(const at::Tensor& x, at::IntArrayRef size, const at::Scalar& value) {
  if (!is_plain_cpu(x)) return x.new_full(size, value);
  return empty_result(size, at::TensorOptions(x.scalar_type())).fill_(value);
}

at::Tensor full_like(const at::Tensor& x, const at::Scalar& value) {
  if (!is_plain_cpu(x)) return at::full_like(x, value);
  return empty_like_result(x).fill_(value);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "new_full(Tensor x, int[] size, Scalar value) -> Tensor", new_full);
  define(m, "full_like(Tensor x, Scalar value) -> Tensor", full_like);
}

}  // namespace
}  // namespace ipex::runtime
