// Copies of what a module holds, which share among one another what the originals share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <unordered_map>

namespace ipex::passes {

// One for a whole module: two tensors over one storage become two over one new storage, and a tensor or a list that is
// there twice is one new one. Sizes, strides, offsets, dtypes and scales are as they were.
class CopiedTensors {
 public:
  c10::IValue copy(const c10::IValue& value);

 private:
  at::Tensor copy(const at::Tensor& tensor);

  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
  c10::IValue::HashIdentityIValueMap values_;
};

// A copy of the piece of memory in which the elements of one tensor lie, with its strides.
at::Tensor copy_of_piece(const at::Tensor& tensor);

}  // namespace ipex::passes
