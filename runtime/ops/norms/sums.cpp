// Sums, variances, largest elements and Euclidean norms over some dimensions: of rows, as in F.normalize, or with others within, as over an image that is
// channels-last, or over the branches of a block that are cut out of its channels.
//
//   ipex::vector_norm(x, dim, keepdim) -> Tensor    as aten::linalg_vector_norm, of order 2
//   ipex::sum(x, dim, keepdim) -> Tensor            as aten::sum
//   ipex::var(x, dim, correction, keepdim) -> Tensor, ipex::std
//                                                   as aten::var.correction
//   ipex::amax(x, dim, keepdim) -> Tensor           as aten::amax
//   ipex::max_values(x, dim, keepdim) -> Tensor     as aten::max.dim, without the indices
//
// aten has vectors for dense rows, and for what is contiguous; variances, and largest
// elements with their indices, it finds element by element. What reduction.h does not take is left to it; a profiler shows
// it, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <optional>

#include "kernels/kernels.h"
#include "ops/norms/reduction.h"
#include "packed/call_conditions.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

at::Tensor vector_norm(const at::Tensor& x, at::IntArrayRef dim, bool keepdim) {
  const char* reason = nullptr;
  if (at::Tensor y = reduced(x, dim, keepdim, kernels().norms.euclidean, reason); y.defined()) return y;
  const LeftToAten left(reason, "ipex::vector_norm");
  return at::linalg_vector_norm(x, 2, dim, keepdim);
}

at::Tensor sum(const at::Tensor& x, at::IntArrayRef dim, bool keepdim) {
  const char* reason = nullptr;
  if (at::Tensor y = reduced(x, dim, keepdim, kernels().norms.sums, reason); y.defined()) return y;
  const LeftToAten left(reason, "ipex::sum");
  return at::sum(x, dim, keepdim);
}

at::Tensor amax(const at::Tensor& x, at::IntArrayRef dim, bool keepdim) {
  const char* reason = nullptr;
  if (at::Tensor y = reduced(x, dim, keepdim, kernels().norms.maxima, reason); y.defined()) return y;
  const LeftToAten left(reason, "ipex::amax");
  return at::amax(x, dim, keepdim);
}

at::Tensor max_values(const at::Tensor& x, int64_t dim, bool keepdim) {
  const char* reason = nullptr;
  if (at::Tensor y = reduced(x, {dim}, keepdim, kernels().norms.maxima, reason); y.defined()) return y;
  const LeftToAten left(reason, "ipex::max_values");
  return std::get<0>(at::max(x, dim, keepdim));
}

// aten sums in double precision: what is not finite in ours may be in its, and so may be what the squares of small numbers
// lack.
at::Tensor variance(const at::Tensor& x, at::IntArrayRef dim, double correction, bool keepdim, const char*& reason) {
  at::Tensor y = reduced(x, dim, keepdim, kernels().norms.variances, reason);
  if (!y.defined()) return y;
  const auto count = static_cast<double>(x.numel() / y.numel());
  if (count <= correction) {
    reason = "it has no degrees of freedom";
    return {};
  }
  const auto scale = static_cast<float>(count / (count - correction));
  float* values = y.mutable_data_ptr<float>();
  constexpr float least = 1e-30F;
  bool are_exact = true;
  for (int64_t i = 0; i < y.numel(); ++i) {
    values[i] *= scale;
    are_exact &= std::isfinite(values[i]) && values[i] >= least;
  }
  if (are_exact) return y;
  reason = "a variance is not finite, or smaller than floats can sum";
  return {};
}

using Correction = std::optional<at::Scalar>;

at::Tensor var(const at::Tensor& x, at::IntArrayRef dim, const Correction& correction, bool keepdim) {
  const char* reason = nullptr;
  if (at::Tensor y = variance(x, dim, correction.value_or(1).toDouble(), keepdim, reason); y.defined()) return y;
  const LeftToAten left(reason, "ipex::var");
  return at::var(x, dim, correction, keepdim);
}

at::Tensor std_of(const at::Tensor& x, at::IntArrayRef dim, const Correction& correction, bool keepdim) {
  const char* reason = nullptr;
  if (at::Tensor y = variance(x, dim, correction.value_or(1).toDouble(), keepdim, reason); y.defined())
    return y.sqrt_();
  const LeftToAten left(reason, "ipex::std");
  return at::std(x, dim, correction, keepdim);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "vector_norm(Tensor x, int[] dim, bool keepdim) -> Tensor", vector_norm);
  define(m, "sum(Tensor x, int[] dim, bool keepdim) -> Tensor", sum);
  define(m, "amax(Tensor x, int[] dim, bool keepdim) -> Tensor", amax);
  define(m, "max_values(Tensor x, int dim, bool keepdim) -> Tensor", max_values);
  define(m, "var(Tensor x, int[] dim, Scalar? correction, bool keepdim) -> Tensor", var);
  define(m, "std(Tensor x, int[] dim, Scalar? correction, bool keepdim) -> Tensor", std_of);
}

}  // namespace
}  // namespace ipex::runtime
