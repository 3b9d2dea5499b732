// A float32 in two halves: docs/decisions/0023-split-weights.md
//
//   ipex::split_weight(x) -> (top, bottom)       the nearest bfloat16, and the lower 16 bits as int16
//   ipex::join_weight(top, bottom) -> x          every bit of it; NaN comes back as the NaN
//   ipex::has_version_of(master, parameter), ipex::set_version_of(master, parameter)
//                                                a master has the version of its parameter: if it lags behind, somebody
//                                                else wrote the parameter
#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/kernels.h"

namespace ipex::runtime {
namespace {

std::tuple<at::Tensor, at::Tensor> split_weight(const at::Tensor& x) {
  TORCH_CHECK_TYPE(x.is_cpu() && x.scalar_type() == at::kFloat,
                   "ipex::split_weight: expected a float32 tensor on the CPU, got ", x.toString(), ".");
  const at::Tensor dense = x.is_non_overlapping_and_dense() ? x : x.contiguous();
  const at::Tensor top = at::empty_like(dense, dense.options().dtype(at::kBFloat16));
  const at::Tensor bottom = at::empty_like(dense, dense.options().dtype(at::kShort));
  kernels().updates.split(dense.const_data_ptr<float>(), static_cast<uint16_t*>(top.mutable_data_ptr()),
                          static_cast<uint16_t*>(bottom.mutable_data_ptr()), dense.numel());
  return {top, bottom};
}

at::Tensor join_weight(const at::Tensor& top, const at::Tensor& bottom) {
  TORCH_CHECK_TYPE(top.is_cpu() && bottom.is_cpu() && top.scalar_type() == at::kBFloat16 &&
                       bottom.scalar_type() == at::kShort && top.sizes() == bottom.sizes(),
                   "ipex::join_weight: expected bfloat16 and int16 tensors of one shape on the CPU, got ",
                   top.toString(), " ", top.sizes(), " and ", bottom.toString(), " ", bottom.sizes(), ".");
  const bool is_dense = top.is_non_overlapping_and_dense() && top.strides() == bottom.strides();
  const at::Tensor upper = is_dense ? top : top.contiguous(), lower = is_dense ? bottom : bottom.contiguous();
  const at::Tensor x = at::empty_like(upper, upper.options().dtype(at::kFloat));
  kernels().updates.join(static_cast<const uint16_t*>(upper.const_data_ptr()),
                         static_cast<const uint16_t*>(lower.const_data_ptr()), x.mutable_data_ptr<float>(), x.numel());
  return x;
}

bool has_version_of(const at::Tensor& master, const at::Tensor& parameter) {
  return master._version() == parameter._version();
}

void set_version_of(const at::Tensor& master, const at::Tensor& parameter) {
  c10::VariableVersion counter = master.unsafeGetTensorImpl()->version_counter();
  counter.set_version(parameter._version());
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.def("split_weight(Tensor x) -> (Tensor top, Tensor bottom)", split_weight);
  m.def("join_weight(Tensor top, Tensor bottom) -> Tensor", join_weight);
  m.def("has_version_of(Tensor master, Tensor parameter) -> bool", has_version_of);
  m.def("set_version_of(Tensor master, Tensor parameter) -> ()", set_version_of);
}

}  // namespace
}  // namespace ipex::runtime
