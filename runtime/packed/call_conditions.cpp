#include "packed/call_conditions.h"

#include <ATen/ATen.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace ipex::runtime {

bool wants_gradient(const at::Tensor& tensor) {
  return (tensor.requires_grad() && at::GradMode::is_enabled()) || tensor._fw_grad(/*level=*/0).defined();
}

bool has_plain_memory(const at::Tensor& tensor) {
  const auto keys = tensor.key_set() - c10::autograd_dispatch_keyset_with_ADInplaceOrView -
                    c10::autocast_dispatch_keyset - c10::DispatchKeySet(c10::DispatchKey::PythonTLSSnapshot);
  return keys.highestPriorityTypeId() == c10::DispatchKey::CPU;
}

bool is_plain_cpu(const at::Tensor& tensor) {
  return has_plain_memory(tensor) && !c10::impl::TorchDispatchModeTLS::any_modes_set();
}

bool is_plain_cpu_float(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat && is_plain_cpu(tensor); }

void FallbackReasons::remember(const std::string& reason) {
  // Shapes vary without end; the list must not.
  constexpr size_t kept_at_most = 16;
  std::lock_guard<std::mutex> lock(mutex_);
  if (reasons_.size() < kept_at_most) reasons_.insert(reason);
}

std::vector<std::string> FallbackReasons::list() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {reasons_.begin(), reasons_.end()};
}

}  // namespace ipex::runtime
