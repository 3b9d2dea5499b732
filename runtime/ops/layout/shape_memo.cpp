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

#include <utility>
#include <vector>

#include "memory/result_memory.h"
#include "onednn/lru_cache.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

using at::IntArrayRef;
using Tensors = std::vector<at::Tensor>;

struct Shape {
  std::vector<int64_t> sizes;
  caffe2::TypeMeta default_dtype = at::get_default_dtype();
  bool is_inference = c10::InferenceMode::is_enabled();  // made there: autograd refuses to save such tensors

  bool operator==(const Shape&) const = default;
};

struct Computed {
  Tensors values;
};

size_t known_bytes(const Computed& computed) {
  size_t bytes = 0;
  for (const at::Tensor& value : computed.values) bytes += value.storage().nbytes();
  return bytes;
}

// A value in a region of results would keep all of the region. Undefined for one that can't be copied as it lies.
at::Tensor outside_of_regions(const at::Tensor& value) {
  if (!gives_back_our_memory(value.storage().data_ptr().get_deleter())) return value;
  return value.is_non_overlapping_and_dense() ? value.clone() : at::Tensor();
}

class ShapeMemo final : public torch::CustomClassHolder {
 public:
  Tensors recall(IntArrayRef sizes) {
    if (is_autocast()) return {};
    const auto found = computed_.find({sizes.vec()});
    return found ? found->values : Tensors{};
  }

  void remember(IntArrayRef sizes, const Tensors& values) {
    if (is_autocast() || known_bytes({values}) > most_bytes) return;
    Computed computed;
    for (const at::Tensor& value : values) {
      if (value.requires_grad() || !value.is_cpu()) return;
      computed.values.push_back(outside_of_regions(value));
      if (!computed.values.back().defined()) return;
    }
    computed_.get({sizes.vec()}, [&] { return std::move(computed); });
  }

  size_t shapes() const { return computed_.size(); }

 private:
  // A server sees few shapes in turn, and many never come again.
  static constexpr size_t most_shapes = 4, most_bytes = size_t{64} << 20;

  // Under autocast some ops would give other dtypes.
  static bool is_autocast() { return at::autocast::is_autocast_enabled(at::kCPU); }

  LruCache<Shape, Computed> computed_{most_shapes, most_bytes};
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
