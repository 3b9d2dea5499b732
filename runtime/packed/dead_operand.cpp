#include "packed/dead_operand.h"

#include <ATen/ATen.h>

#include <atomic>

#include "memory/memory_pages.h"
#include "packed/call_conditions.h"

namespace ipex::runtime {

std::vector<at::Tensor> take_tensors(c10::IValue list) {
  c10::List<at::Tensor> tensors = std::move(list).toTensorList();
  if (tensors.use_count() != 1) return tensors.vec();
  std::vector<at::Tensor> taken;
  taken.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) taken.push_back(tensors.extract(i));
  return taken;
}

bool is_dead(const at::Tensor& operand) {
  if (!operand.defined() || !is_plain_cpu(operand) || !is_ours_alone(operand)) return false;
  const at::Storage& storage = operand.storage();
  const bool is_all =
      operand.storage_offset() == 0 && storage.nbytes() == static_cast<size_t>(operand.numel()) * operand.itemsize();
  // Others may have held it a moment ago, in other threads: what they read, they read before this.
  std::atomic_thread_fence(std::memory_order_acquire);
  return is_all && storage.resizable();
}

at::Tensor in_memory_of(const at::Tensor& dead, at::IntArrayRef sizes, at::MemoryFormat format) {
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(dead.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), dead.dtype());
  result.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  result.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return result;
}

}  // namespace ipex::runtime
