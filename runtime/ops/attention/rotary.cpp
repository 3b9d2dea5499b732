// Rotary embeddings: pairs of numbers, turned by the angle of their position.
//
//   ipex::rotary(x, cos, sin, form, dim, half) -> y = x * cos + r * sin
//     form "slices":  r = cat([-x[half:], x[:half]]), along dimension `dim`, which is the last
//     form "chunks":  r = cat([-b, a]) with a, b = x.chunk(2, dim)
//     form "pairs":   r = stack([-x[1::2], x[::2]], -1).flatten(-2)
//   ipex::rotary.partial(x, cos, sin, form, dim, half, turned, cut) -> y = cat([rotary(x[:turned], ..), x[turned:]], -1)
//     where x is cut along the dimension `cut`
//   ipex::rotary.behind(x, cos, sin, form, dim, half, kept, cut, dtype) -> y = cat([x[:kept], rotary(x[kept:], ..)], cut)
//     where x is cut along the dimension `cut`, and what was turned is cast to `dtype`, if that is given
//
// The kernels take float32, bfloat16 and float16, cos and sin that are broadcast to x, and two halves of one size. Numbers of
// 16 bits are rounded after each product and the sum, as eager rounds them. The result has the strides that eager would give
// it. All else is computed by aten as the model spelled it; a profiler shows that, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <array>
#include <cstring>
#include <limits>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "ops/elementwise/eager_layout.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

using at::Tensor;

constexpr const char* slices = "slices";
constexpr const char* chunks = "chunks";
constexpr const char* pairs = "pairs";

// The rows of several tensors of one shape, in order.
template <size_t count>
class Rows {
 public:
  static constexpr size_t most = Layout::most_dimensions;

  // `strides` of each tensor, in bytes; those of dimensions that are repeated are 0. The last dimension is the row.
  Rows(at::IntArrayRef sizes, const std::array<std::array<int64_t, most>, count>& strides, int64_t first)
      : dimensions_(sizes.size() - 1), strides_(strides) {
    for (size_t d = dimensions_; d-- > 0;) {
      sizes_[d] = sizes[d];
      at_[d] = first % sizes[d];
      first /= sizes[d];
      for (size_t t = 0; t < count; ++t) offsets_[t] += at_[d] * strides_[t][d];
    }
  }

  int64_t offset(size_t tensor) const { return offsets_[tensor]; }

  void next() {
    for (size_t d = dimensions_; d-- > 0;) {
      const bool is_last = ++at_[d] == sizes_[d];
      for (size_t t = 0; t < count; ++t) offsets_[t] += is_last ? -(sizes_[d] - 1) * strides_[t][d] : strides_[t][d];
      if (!is_last) return;
      at_[d] = 0;
    }
  }

 private:
  size_t dimensions_;
  std::array<int64_t, most> sizes_{}, at_{};
  std::array<std::array<int64_t, most>, count> strides_;
  std::array<int64_t, count> offsets_{};
};

struct Rotary {
  std::string_view form;
  int64_t dim, half;

  Tensor exchanged(const Tensor& x) const {
    constexpr int64_t end = std::numeric_limits<int64_t>::max();
    if (form == pairs) {
      const Tensor second = -x.slice(dim, 1, end, 2);
      return at::stack({second, x.slice(dim, 0, end, 2)}, -1).flatten(-2);
    }
    if (form == slices) return at::cat({-x.slice(dim, half, end), x.slice(dim, 0, half)}, -1);
    const std::vector<Tensor> both = x.chunk(2, dim);
    TORCH_CHECK(both.size() == 2, "ipex::rotary: expected two chunks of dimension ", dim, ", got ", both.size(),
                " of an input of sizes ", x.sizes(), ".");
    return at::cat({-both[1], both[0]}, -1);
  }

  // `turned` numbers of each row.
  const char* reason_for_aten(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t turned) const {
    if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
    const at::ScalarType dtype = x.scalar_type();
    if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) return "its input is of another dtype";
    for (const Tensor* tensor : {&x, &cos, &sin}) {
      if (tensor->scalar_type() != dtype) return "its inputs are of several dtypes";
      if (!is_plain_cpu(*tensor)) return "an input is not a plain CPU tensor";
      if (wants_gradient(*tensor)) return "an input requires a gradient";
    }
    const int64_t rank = x.dim();
    if (x.numel() == 0 || rank == 0 || rank > Layout::most_dimensions)
      return "its input is empty, or has many dimensions";
    if (dim != -1 && dim != rank - 1) return "it does not turn pairs of the last dimension";
    if (turned < 2 || turned > x.size(-1)) return "it turns no part of a row";
    if (turned % 2 != 0 || (form == slices && half != turned / 2)) return "its halves differ in size";
    if (x.suggest_memory_format() != at::MemoryFormat::Contiguous) return "its input is channels-last";
    if (x.stride(-1) != 1) return "its rows have gaps";
    for (const Tensor* factor : {&cos, &sin}) {
      if (factor->dim() == 0 || factor->dim() > rank || factor->size(-1) != turned || factor->stride(-1) != 1) {
        return "an angle is not given for each number of a row";
      }
      for (int64_t i = 2; i <= factor->dim(); ++i) {
        if (factor->size(-i) != 1 && factor->size(-i) != x.size(-i)) return "its input is broadcast";
      }
    }
    return nullptr;
  }

  // As eager's ops would hand it on, from one to the next.
  static Layout layout_of_result(const Tensor& x, const Tensor& cos, const Tensor& sin) {
    const Layout of_x = Layout::of(x), of_cos = Layout::of(cos), of_sin = Layout::of(sin);
    Layout joined = of_x;
    int64_t stride = 1;
    for (int64_t i = joined.dimensions - 1; i >= 0; --i) {
      joined.strides[static_cast<size_t>(i)] = stride;
      stride *= joined.sizes[static_cast<size_t>(i)];
    }
    Layout first, second, sum;
    const bool fits = result_layout({&of_x, &of_cos}, first) && result_layout({&joined, &of_sin}, second) &&
                      result_layout({&first, &second}, sum);
    TORCH_INTERNAL_ASSERT(fits);
    return sum;
  }

  Tensor run(const Tensor& x, const Tensor& cos, const Tensor& sin) const {
    const Layout layout = layout_of_result(x, cos, sin);
    const bool is_as_new = layout.is_as_new();
    const Tensor y = empty_result(is_as_new ? layout.all_sizes() : at::IntArrayRef(x.numel()), x.options());
    if (!is_as_new) y.unsafeGetTensorImpl()->set_sizes_and_strides(layout.all_sizes(), layout.all_strides());
    turn(x, cos, sin, x.size(-1), y);
    return y;
  }

  // What is left of a row is copied.
  void turn(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t turned, const Tensor& y) const {
    const RotaryKernels& all = kernels().rotary;
    const auto rotate = x.scalar_type() == at::kFloat      ? all.floats
                        : x.scalar_type() == at::kBFloat16 ? all.bfloat16
                                                           : all.float16;
    const int64_t rank = x.dim(), rows = x.numel() / x.size(-1);
    const auto bytes = static_cast<int64_t>(x.element_size());
    std::array<std::array<int64_t, Layout::most_dimensions>, 4> strides{};
    const Tensor* tensors[] = {&x, &cos, &sin, &y};
    for (size_t t = 0; t < strides.size(); ++t) {
      const int64_t missing = rank - tensors[t]->dim();
      for (int64_t d = missing; d < rank - 1; ++d) {
        const bool repeats = tensors[t]->size(d - missing) == 1;
        strides[t][static_cast<size_t>(d)] = repeats ? 0 : tensors[t]->stride(d - missing) * bytes;
      }
    }
    const auto *from = static_cast<const char*>(x.const_data_ptr()),
               *c = static_cast<const char*>(cos.const_data_ptr()), *s = static_cast<const char*>(sin.const_data_ptr());
    auto* to = static_cast<char*>(y.mutable_data_ptr());
    const int64_t turned_bytes = turned * bytes, left_bytes = (x.size(-1) - turned) * bytes;
    constexpr int64_t numbers_worth_waking = 32768;
    parallel_for(rows, grain_of(rows, x.numel(), numbers_worth_waking), [&](int64_t begin, int64_t end) {
      Rows<4> row(x.sizes(), strides, begin);
      for (int64_t i = begin; i < end; ++i, row.next()) {
        const char* own = from + row.offset(0);
        rotate(own, c + row.offset(1), s + row.offset(2), turned, form == pairs, to + row.offset(3));
        if (left_bytes > 0) std::memcpy(to + row.offset(3) + turned_bytes, own + turned_bytes, left_bytes);
      }
    });
  }
};

Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, std::string_view form, int64_t dim, int64_t half) {
  TORCH_CHECK(form == slices || form == chunks || form == pairs,
              "ipex::rotary: expected form slices, chunks or pairs, got ", form, ".");
  const Rotary rotary{form, dim, half};
  const char* reason = rotary.reason_for_aten(x, cos, sin, x.dim() > 0 ? x.size(-1) : 0);
  if (!reason) return rotary.run(x, cos, sin);
  const LeftToAten left(reason, "ipex::rotary");
  return at::add(at::mul(x, cos), at::mul(rotary.exchanged(x), sin));
}

Tensor rotary_of_part(const Tensor& x, const Tensor& cos, const Tensor& sin, std::string_view form, int64_t dim,
                      int64_t half, int64_t turned, int64_t cut) {
  const Rotary rotary_of_all{form, dim, half};
  const char* reason = rotary_of_all.reason_for_aten(x, cos, sin, turned);
  if (!reason && cut != -1 && cut != x.dim() - 1) reason = "it is cut along another dimension";
  // The result has the format that all parts have.
  if (!reason && x.slice(-1, turned).suggest_memory_format() != at::MemoryFormat::Contiguous) {
    reason = "its input is channels-last";
  }
  if (!reason) {
    const Tensor y = empty_result(x.sizes(), x.options());
    rotary_of_all.turn(x, cos, sin, turned, y);
    return y;
  }
  RECORD_FUNCTION(c10::str("ipex::rotary in parts: ", reason), {});
  constexpr int64_t end = std::numeric_limits<int64_t>::max();
  return at::cat({rotary(x.slice(cut, 0, turned), cos, sin, form, dim, half), x.slice(cut, turned, end)}, -1);
}

Tensor rotary_of_all_behind(const Tensor& x, const Tensor& cos, const Tensor& sin, std::string_view form, int64_t dim,
                            int64_t half, int64_t kept, int64_t cut, std::optional<at::ScalarType> dtype) {
  constexpr int64_t end = std::numeric_limits<int64_t>::max();
  const Tensor first = x.slice(cut, 0, kept), rest = x.slice(cut, kept, end);
  const Rotary rotary_of_rest{form, dim, half};
  const char* reason = rotary_of_rest.reason_for_aten(rest, cos, sin, rest.dim() > 0 ? rest.size(-1) : 0);
  if (!reason && (cut == -1 || cut == x.dim() - 1)) reason = "it is cut along its rows";
  if (!reason && dtype && dtype != x.scalar_type()) reason = "its result is cast";
  if (!reason && first.suggest_memory_format() != at::MemoryFormat::Contiguous) reason = "its input is channels-last";
  if (!reason) {
    const Tensor y = empty_result(x.sizes(), x.options());
    y.slice(cut, 0, kept).copy_(first);
    rotary_of_rest.turn(rest, cos, sin, rest.size(-1), y.slice(cut, kept, end));
    return y;
  }
  RECORD_FUNCTION(c10::str("ipex::rotary in parts: ", reason), {});
  const Tensor turned = rotary(rest, cos, sin, form, dim, half);
  return at::cat({first, dtype ? turned.to(*dtype) : turned}, cut);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "rotary(Tensor x, Tensor cos, Tensor sin, str form, int dim, int half) -> Tensor", rotary);
  define(m,
         "rotary.partial(Tensor x, Tensor cos, Tensor sin, str form, int dim, int half, int turned, int cut) -> Tensor",
         rotary_of_part);
  define(m,
         "rotary.behind(Tensor x, Tensor cos, Tensor sin, str form, int dim, int half, int kept, int cut, "
         "ScalarType? dtype) -> Tensor",
         rotary_of_all_behind);
}

}  // namespace
}  // namespace ipex::runtime
