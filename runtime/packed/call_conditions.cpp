#include "packed/call_conditions.h"

#include <ATen/ATen.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <mutex>

namespace ipex::runtime {

bool wants_gradient(const at::Tensor& tensor) {
  return (tensor.requires_grad() && at::GradMode::is_enabled()) || tensor._fw_grad(/*level=*/0).defined();
}

bool has_plain_memory(const at::Tensor& tensor) {
  const auto keys = tensor.key_set() - c10::autograd_dispatch_keyset_with_ADInplaceOrView -
                    c10::autocast_dispatch_keyset - c10::DispatchKeySet(c10::DispatchKey::PythonTLSSnapshot);
  return keys.highestPriorityTypeId() == c10::DispatchKey::CPU;
}

std::optional<int64_t> elements_within(int64_t held, int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t last = offset, elements = 1;  // the number of the last element, and of all
  if (last < 0 || sizes.size() != strides.size()) return std::nullopt;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t reach = 0;
    if (sizes[i] < 0 || strides[i] < 0 || __builtin_mul_overflow(elements, sizes[i], &elements) ||
        (sizes[i] > 0 &&
         (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) || __builtin_add_overflow(last, reach, &last)))) {
      return std::nullopt;
    }
  }
  return elements == 0 || last < held ? std::optional(elements) : std::nullopt;
}

bool walk_finds_all_memory(const at::Tensor& tensor) {
  const auto held = static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize());
  return elements_within(held, tensor.storage_offset(), tensor.sizes(), tensor.strides()) == tensor.numel();
}

bool is_plain_cpu(const at::Tensor& tensor) {
  return has_plain_memory(tensor) && !c10::impl::TorchDispatchModeTLS::any_modes_set();
}

bool is_plain_cpu_float(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat && is_plain_cpu(tensor); }

void FallbackReasons::remember(const std::string& reason) {
  // Shapes vary without end; the list must not.
  constexpr size_t kept_at_most = 16;
  const std::lock_guard lock(mutex_);
  if (reasons_.size() < kept_at_most) reasons_.insert(reason);
}

std::vector<std::string> FallbackReasons::list() const {
  const std::lock_guard lock(mutex_);
  return {reasons_.begin(), reasons_.end()};
}

}  // namespace ipex::runtime
