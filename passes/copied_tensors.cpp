#include "copied_tensors.h"

#include <ATen/ATen.h>

#include "ir/storages.h"

namespace ipex::passes {
namespace {

c10::Storage copy_of(const c10::Storage& storage, int64_t first, int64_t bytes) {
  const auto piece =
      at::empty({0}, at::TensorOptions(at::kByte).device(storage.device())).set_(storage, first, {bytes}, {1});
  return piece.clone().storage();
}

// Another tensor of the same kind, with the same strides and scales, over other memory.
at::Tensor moved_to(const c10::Storage& storage, int64_t offset, const at::Tensor& tensor) {
  if (tensor.is_inference()) {  // which has no version counter: the copy is an ordinary tensor
    at::Tensor made = at::empty({0}, tensor.options()).set_(storage, offset, tensor.sizes(), tensor.strides());
    made._set_conj(tensor.is_conj());
    made._set_neg(tensor.is_neg());
    return made;
  }
  auto made = tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), true);
  made->set_storage_keep_dtype(storage);
  made->set_storage_offset(offset);
  return at::Tensor(std::move(made));
}

}  // namespace

c10::IValue CopiedTensors::copy(const c10::IValue& value) {
  for_each_tensor(value, [&](const at::Tensor& tensor) {
    if (!values_.count(tensor)) values_.emplace(tensor, copy(tensor));
  });
  return value.deepcopy(values_);
}

at::Tensor CopiedTensors::copy(const at::Tensor& tensor) {
  const at::NoGradGuard guard;
  if (tensor.layout() != at::kStrided || !tensor.has_storage()) return tensor.detach().clone();
  c10::Storage& storage = storages_.try_emplace(tensor.storage().unsafeGetStorageImpl()).first->second;
  if (!storage) storage = copy_of(tensor.storage(), 0, static_cast<int64_t>(tensor.storage().nbytes()));
  return moved_to(storage, tensor.storage_offset(), tensor)
      .set_requires_grad(tensor.is_leaf() && tensor.requires_grad());
}

at::Tensor copy_of_piece(const at::Tensor& tensor) {
  int64_t elements = tensor.numel() > 0 ? 1 : 0;
  for (int64_t d = 0; tensor.numel() > 0 && d < tensor.dim(); ++d) elements += (tensor.size(d) - 1) * tensor.stride(d);
  const auto width = static_cast<int64_t>(tensor.element_size());
  return moved_to(copy_of(tensor.storage(), tensor.storage_offset() * width, elements * width), 0, tensor);
}

}  // namespace ipex::passes
