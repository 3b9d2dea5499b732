// gelu as models spell it:
//
//   ipex::erf_gelu(x) -> Tensor
//
// Not aten::gelu, which makes NaN of infinity on some CPUs. It is there to be fused: by itself it is what the model has.
#include "packed/erf_gelu.h"

#include "packed/door.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>

namespace ipex::runtime {

at::Tensor erf_gelu(const at::Tensor& x) { return x * 0.5 * (at::erf(x * std::sqrt(0.5)) + 1); }

namespace {
TORCH_LIBRARY_FRAGMENT(ipex, m) { define(m, "erf_gelu(Tensor x) -> Tensor", erf_gelu); }
}  // namespace

}  // namespace ipex::runtime
