// What a model computes from sizes alone, kept for the sizes seen last: masks, positions, tables of sines.
//
//   ipex::shape_memo_prepack() -> ShapeMemo
//   ipex::recall(ShapeMemo memo, int[] sizes) -> Tensor[]                       empty where nothing is kept for these sizes
//   ipex::remember(ShapeMemo memo, int[] sizes, Tensor[] values) -> Tensor[]    the values
//
// compute_once_per_shape writes them, and sees to it that nobody writes to a value or gives it to the caller.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <vector>

#include "memory/emptied_cache.h"
#include "memory/result_memory.h"
#include "packed/door.h"
#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {
namespace {

using at::IntArrayRef;
using Tensors = std::vector<at::Tensor>;

// A server sees few shapes in turn, and many never come again.
constexpr size_t most_shapes = 4;
constexpr size_t most_bytes = size_t{64} << 20;

size_t bytes_of(const Tensors& values) {
  size_t bytes = 0;
  for (const at::Tensor& value : values) bytes += value.storage().nbytes();
  return bytes;
}

// A value in a region of results would keep all of the region. Undefined for one that can't be copied as it lies.
at::Tensor outside_of_regions(const at::Tensor& value) {
  if (!gives_back_our_memory(value.storage().data_ptr().get_deleter())) return value;
  return value.is_non_overlapping_and_dense() ? value.clone() : at::Tensor();
}

class ShapeMemo final : public torch::CustomClassHolder, EmptiedCache {
 public:
  ShapeMemo() { join(); }
  ~ShapeMemo() override { leave(); }

  Tensors recall(IntArrayRef sizes) const {
    if (is_autocast()) return {};
    const std::lock_guard guard(mutex_);
    const auto found = find(sizes);
    return found == entries_.end() ? Tensors{} : found->values;
  }

  void remember(IntArrayRef sizes, const Tensors& values) {
    if (is_autocast() || bytes_of(values) > most_bytes) return;
    Entry made{sizes.vec(), at::get_default_dtype(), c10::InferenceMode::is_enabled(), {}};
    for (const at::Tensor& value : values) {
      if (value.requires_grad() || !value.is_cpu()) return;
      made.values.push_back(outside_of_regions(value));
      if (!made.values.back().defined()) return;
    }
    std::vector<Entry> dropped;  // freed when the mutex is
    const std::lock_guard guard(mutex_);
    if (find(sizes) != entries_.end()) return;  // another thread was here
    entries_.insert(entries_.begin(), std::move(made));
    size_t bytes = 0;
    auto over = std::find_if(entries_.begin(), entries_.end(),
                             [&](const Entry& entry) { return (bytes += bytes_of(entry.values)) > most_bytes; });
    if (over == entries_.end() && entries_.size() > most_shapes) --over;
    dropped.assign(std::make_move_iterator(over), std::make_move_iterator(entries_.end()));
    entries_.erase(over, entries_.end());
  }

  size_t shapes() const {
    const std::lock_guard guard(mutex_);
    return entries_.size();
  }

 private:
  struct Entry {
    std::vector<int64_t> sizes;
    caffe2::TypeMeta default_dtype;
    bool is_inference;  // made in inference mode: autograd refuses to save such tensors
    Tensors values;
  };

  void empty(std::vector<std::shared_ptr<const void>>& values) override {
    const std::lock_guard guard(mutex_);
    values.push_back(std::make_shared<const std::vector<Entry>>(std::move(entries_)));
    entries_.clear();
  }

  // Under autocast some ops would give other dtypes.
  static bool is_autocast() { return at::autocast::is_autocast_enabled(at::kCPU); }

  std::vector<Entry>::const_iterator find(IntArrayRef sizes) const {
    const auto dtype = at::get_default_dtype();
    const bool is_inference = c10::InferenceMode::is_enabled();
    return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return IntArrayRef(entry.sizes) == sizes && entry.default_dtype == dtype && entry.is_inference == is_inference;
    });
  }

  mutable ForkSafeMutex mutex_;
  std::vector<Entry> entries_;  // the newest first
};

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  using Pointer = c10::intrusive_ptr<ShapeMemo>;
  m.class_<ShapeMemo>("ShapeMemo")
      .def("shapes", [](const Pointer& memo) { return static_cast<int64_t>(memo->shapes()); })
      .def("describe", [](const Pointer& memo) { return c10::str("ipex::recall(shapes=", memo->shapes(), ")"); })
      .def("__repr__", [](const Pointer& memo) { return c10::str("ipex::recall(shapes=", memo->shapes(), ")"); })
      // A saved or copied model begins with nothing.
      .def_pickle([](const Pointer&) { return int64_t{0}; }, [](int64_t) { return c10::make_intrusive<ShapeMemo>(); });
  define(m, "shape_memo_prepack() -> __torch__.torch.classes.ipex.ShapeMemo",
         [] { return c10::make_intrusive<ShapeMemo>(); });
  define(m, "recall(__torch__.torch.classes.ipex.ShapeMemo memo, int[] sizes) -> Tensor[]",
         [](const Pointer& memo, IntArrayRef sizes) { return memo->recall(sizes); });
  define(m, "remember(__torch__.torch.classes.ipex.ShapeMemo memo, int[] sizes, Tensor[] values) -> Tensor[]",
         [](const Pointer& memo, IntArrayRef sizes, Tensors values) {
           memo->remember(sizes, values);
           return values;
         });
}

}  // namespace
}  // namespace ipex::runtime
