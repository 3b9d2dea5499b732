// Sums and Euclidean norms over some dimensions: of rows, as in F.normalize, or with others within, as over an image that is
// channels-last, or over the branches of a block that are cut out of its channels.
//
//   ipex::vector_norm(x, dim, keepdim) -> Tensor    as aten::linalg_vector_norm, of order 2
//   ipex::sum(x, dim, keepdim) -> Tensor            as aten::sum
//
// aten has vectors for dense rows, and for what is contiguous. What reduction.h does not take is left to it; a profiler shows
// it, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include "kernels/kernels.h"
#include "ops/norms/reduction.h"

namespace ipex::runtime {
namespace {

at::Tensor vector_norm(const at::Tensor& x, at::IntArrayRef dim, bool keepdim) {
  const char* reason = nullptr;
  if (at::Tensor y = reduced(x, dim, keepdim, kernels().norms.euclidean, reason); y.defined()) return y;
  RECORD_FUNCTION(c10::str("ipex::vector_norm in aten: ", reason), {});
  return at::linalg_vector_norm(x, 2, dim, keepdim);
}

at::Tensor sum(const at::Tensor& x, at::IntArrayRef dim, bool keepdim) {
  const char* reason = nullptr;
  if (at::Tensor y = reduced(x, dim, keepdim, kernels().norms.sums, reason); y.defined()) return y;
  RECORD_FUNCTION(c10::str("ipex::sum in aten: ", reason), {});
  return at::sum(x, dim, keepdim);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.def("vector_norm(Tensor x, int[] dim, bool keepdim) -> Tensor", vector_norm);
  m.def("sum(Tensor x, int[] dim, bool keepdim) -> Tensor", sum);
}

}  // namespace
}  // namespace ipex::runtime
