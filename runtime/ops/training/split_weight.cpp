// A float32 in two halves: docs/decisions/modules.md
//
//   ipex::split_weight(x) -> (top, bottom)       the nearest bfloat16, and the lower 16 bits as int16
//   ipex::join_weight(top, bottom) -> x          every bit of it; NaN comes back as the NaN
//   ipex::has_version_of(master, parameter), ipex::set_version_of(master, parameter)
//                                                a master has the version of its parameter: if it lags behind, somebody
//                                                else wrote the parameter
//
// Kernels of ours on the CPU, and torch's ops on any other device.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/kernels.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

// NaN is written as 0x7fc00000: a payload could carry into a number. int16 keeps the lower 16 bits of what it is given.
std::tuple<at::Tensor, at::Tensor> split_by_torch(const at::Tensor& x) {
  const at::Tensor bits = x.masked_fill(x.isnan(), std::numeric_limits<double>::quiet_NaN()).view(at::kInt);
  const at::Tensor top = at::bitwise_right_shift(bits + 0x8000, at::Scalar(16));
  return {top.to(at::kShort).view(at::kBFloat16), bits.to(at::kShort)};
}

at::Tensor join_by_torch(const at::Tensor& top, const at::Tensor& bottom) {
  // A bottom that is negative as int16 has its first bit set, and adding it undoes the carry.
  return (at::bitwise_left_shift(top.view(at::kShort).to(at::kInt), at::Scalar(16)) + bottom).view(at::kFloat);
}

std::tuple<at::Tensor, at::Tensor> split_weight(const at::Tensor& x) {
  TORCH_CHECK_TYPE(x.scalar_type() == at::kFloat, "ipex::split_weight: expected a float32 tensor, got ", x.toString(),
                   ".");
  if (!x.is_cpu()) return split_by_torch(x);
  const at::Tensor dense = x.is_non_overlapping_and_dense() ? x : x.contiguous();
  const at::Tensor top = at::empty_like(dense, dense.options().dtype(at::kBFloat16));
  const at::Tensor bottom = at::empty_like(dense, dense.options().dtype(at::kShort));
  kernels().updates.split(dense.const_data_ptr<float>(), static_cast<uint16_t*>(top.mutable_data_ptr()),
                          static_cast<uint16_t*>(bottom.mutable_data_ptr()), dense.numel());
  return {top, bottom};
}

at::Tensor join_weight(const at::Tensor& top, const at::Tensor& bottom) {
  TORCH_CHECK_TYPE(top.device() == bottom.device() && top.scalar_type() == at::kBFloat16 &&
                       bottom.scalar_type() == at::kShort && top.sizes() == bottom.sizes(),
                   "ipex::join_weight: expected bfloat16 and int16 tensors of one shape on one device, got ",
                   top.toString(), " ", top.sizes(), " and ", bottom.toString(), " ", bottom.sizes(), ".");
  if (!top.is_cpu()) return join_by_torch(top, bottom);
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
  define(m, "split_weight(Tensor x) -> (Tensor top, Tensor bottom)", split_weight);
  define(m, "join_weight(Tensor top, Tensor bottom) -> Tensor", join_weight);
  define(m, "has_version_of(Tensor master, Tensor parameter) -> bool", has_version_of);
  define(m, "set_version_of(Tensor master, Tensor parameter) -> ()", set_version_of);
}

}  // namespace
}  // namespace ipex::runtime
