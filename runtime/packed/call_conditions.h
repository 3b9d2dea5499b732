// What a kernel on plain pointers asks of the tensors of a call.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {

// Whether somebody wants to differentiate what is computed from the tensor.
bool wants_gradient(const at::Tensor& tensor);

// Whether what lies at data_ptr() is all there is to the tensor: no lazy negation or zero, no subclass, no vmap.
bool has_plain_memory(const at::Tensor& tensor);

// How many elements a tensor has, none where one of them lies outside of a storage that holds so many.
std::optional<int64_t> elements_within(int64_t held, int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides);

// Whether the storage reaches as far as sizes, strides and offset say. Of tensors that have one. Of most tensors their own flags tell, at
// a fraction of the cost of a walk over sizes and strides.
bool walk_finds_all_memory(const at::Tensor& tensor);
inline bool has_all_its_memory(const at::Tensor& tensor) {
  const at::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const auto elements = static_cast<size_t>(impl.storage_offset() + impl.numel());
  return (impl.is_non_overlapping_and_dense() && impl.storage().nbytes() >= elements * impl.itemsize()) ||
         walk_finds_all_memory(tensor);
}

// has_plain_memory, and no mode of Python's wants to see what is done with the tensor.
bool is_plain_cpu(const at::Tensor& tensor);
bool is_plain_cpu_float(const at::Tensor& tensor);

// While it lives, tensors that we make for ourselves are real ones, whatever mode of Python's is on.
class OutsideOfPythonModes {
  const c10::impl::ExcludeDispatchKeyGuard guard_{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

// While it lives, profilers show what `text` gives, which nobody asks for without one.
class ProfilerNote {
 public:
  template <typename Text>
  explicit ProfilerNote(Text&& text) {
    if (auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION)) {
      record_.emplace(std::move(*callbacks));
      record_->before(text());
    }
  }

 private:
  std::optional<at::RecordFunction> record_;  // to make one takes as long as a small op
};

// Stands around what aten computes of a call that an op of ours declines: profilers show the op and the reason.
class LeftToAten : ProfilerNote {
 public:
  // The op's name may come in parts.
  template <typename... Name>
  explicit LeftToAten(const char* reason, const Name&... name)
      : ProfilerNote([&] { return c10::str(name..., " in aten: ", reason); }) {}
};

// Why calls were left to aten, each reason once. Safe for many threads.
class FallbackReasons {
 public:
  void remember(const std::string& reason);
  std::vector<std::string> list() const;

 private:
  mutable ForkSafeMutex mutex_;
  std::set<std::string> reasons_;
};

}  // namespace ipex::runtime
