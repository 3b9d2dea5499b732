// Images with a border, as models of windows give them one that may be empty.
//
//   ipex::pad(x, pads, mode, value, may_be_input) -> Tensor    as aten::pad
//
// With `may_be_input` nobody can tell the result from x, and where nothing is padded it is x. aten copies then too; and it fills all of
// a padded image before it copies. Here each number is written once, in the order of memory. Constant numbers around plain tensors; all else is left to aten,
// also what aten refuses. A profiler shows that, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/copy_elements.h"
#include "packed/door.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

constexpr int64_t elements_worth_waking = 32768;
constexpr int64_t shortest_row = 64;  // bytes: shorter ones aten fills and copies as fast

const char* reason_for_aten(const at::Tensor& x, at::IntArrayRef pads, c10::string_view mode) {
  if (mode != "constant") return "its border is no number";
  if (!is_plain_cpu(x) || x.is_quantized()) return "it is not a plain CPU tensor";
  if (wants_gradient(x)) return "it requires a gradient";
  if (x.numel() == 0) return "it is empty";
  const bool fits = pads.size() % 2 == 0 && static_cast<int64_t>(pads.size()) <= 2 * x.dim();
  const bool cuts = std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad < 0; });
  return !fits || cuts ? "its pads do not fit, or cut" : nullptr;
}

// A dimension of the padded image; its stride is that of x.
struct Dimension {
  int64_t before, size, after, stride;
  int64_t padded_size() const { return before + size + after; }
};

// The padded image as rows: each is a border, a run of x, and a border, in elements. A row takes in dimensions from the last
// one on, up to the first that is padded, or where x has a gap.
struct Padding {
  c10::SmallVector<Dimension, 5> outer;  // in the order of memory
  int64_t before, run, after;
  int64_t width() const { return before + run + after; }
};

template <typename PadOf>
Padding find_padding(const at::Tensor& x, const at::Tensor& y, PadOf&& pad_of) {
  at::DimVector order(static_cast<size_t>(x.dim()));
  std::iota(order.begin(), order.end(), 0);
  if (!y.is_contiguous()) std::rotate(order.begin() + 1, order.begin() + 2, order.end());  // channels-last
  Padding padding{{}, 0, 1, 0};
  size_t left = order.size();
  while (left > 0 && padding.width() == padding.run) {
    const int64_t d = order[left - 1];
    if (x.size(d) != 1 && x.stride(d) != padding.run) break;
    --left;
    padding = {{}, pad_of(d, 0) * padding.run, x.size(d) * padding.run, pad_of(d, 1) * padding.run};
  }
  for (const int64_t d : c10::IntArrayRef(order).slice(0, left)) {
    padding.outer.push_back({pad_of(d, 0), x.size(d), pad_of(d, 1), x.stride(d)});
  }
  return padding;
}

void fill(char* to, int64_t bytes, const at::Tensor& number) {
  const auto size = static_cast<int64_t>(number.element_size());
  if (bytes == 0) return;
  std::memcpy(to, number.const_data_ptr(), static_cast<size_t>(size));
  for (int64_t done = size; done < bytes; done *= 2) {
    std::memcpy(to + done, to, static_cast<size_t>(std::min(done, bytes - done)));
  }
}

void write_rows(const Padding& padding, const at::Tensor& x, const at::Tensor& y, const at::Tensor& number) {
  const auto size = static_cast<int64_t>(x.element_size());
  const int64_t width = padding.width(), rows = y.numel() / width;
  const auto* const from = static_cast<const char*>(x.const_data_ptr());
  auto* const to = static_cast<char*>(y.mutable_data_ptr());
  parallel_for(rows, grain_of(rows, y.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t place = 0, index = row;
      bool is_border = false;
      for (size_t d = padding.outer.size(); d-- > 0;) {
        const Dimension& dimension = padding.outer[d];
        const int64_t i = index % dimension.padded_size() - dimension.before;
        is_border |= i < 0 || i >= dimension.size;
        place += i * dimension.stride;
        index /= dimension.padded_size();
      }
      char* const first = to + row * width * size;
      if (is_border) {
        fill(first, width * size, number);
        continue;
      }
      char* const inside = first + padding.before * size;
      fill(first, padding.before * size, number);
      std::memcpy(inside, from + place * size, static_cast<size_t>(padding.run * size));
      fill(inside + padding.run * size, padding.after * size, number);
    }
  });
}

at::Tensor pad(const at::Tensor& x, at::IntArrayRef pads, c10::string_view mode, std::optional<double> value,
               bool may_be_input) {
  const char* reason = reason_for_aten(x, pads, mode);
  const bool pads_nothing = std::all_of(pads.begin(), pads.end(), [](int64_t pad) { return pad == 0; });
  if (!reason && pads_nothing) {
    if (may_be_input && x.is_non_overlapping_and_dense()) return x;
    reason = "nothing is padded";
  }
  if (reason) {
    const LeftToAten left(reason, "ipex::pad");
    return at::pad(x, pads, mode, value);
  }
  // Pads count dimensions from the last one.
  const auto pad_of = [&](int64_t dimension, int64_t side) {
    const auto at = static_cast<size_t>(2 * (x.dim() - 1 - dimension) + side);
    return at < pads.size() ? pads[at] : 0;
  };
  at::DimVector sizes(x.sizes());
  for (int64_t d = 0; d < x.dim(); ++d) sizes[static_cast<size_t>(d)] += pad_of(d, 0) + pad_of(d, 1);
  const at::Tensor y = empty_result(sizes, x.options().memory_format(x.suggest_memory_format()));
  const Padding padding = find_padding(x, y, pad_of);
  if (padding.width() * static_cast<int64_t>(x.element_size()) >= shortest_row) {
    write_rows(padding, x, y, at::full({}, value.value_or(0), x.options()));
    return y;
  }
  at::Tensor inside = y;
  for (int64_t d = 0; d < x.dim(); ++d) {
    const int64_t before = pad_of(d, 0), after = pad_of(d, 1), size = x.size(d);
    if (before > 0) inside.narrow(d, 0, before).fill_(value.value_or(0));
    if (after > 0) inside.narrow(d, before + size, after).fill_(value.value_or(0));
    inside = inside.narrow(d, before, size);
  }
  copy_elements(inside, x);
  return y;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "pad(Tensor(a) x, int[] pads, str mode, float? value, bool may_be_input) -> Tensor(a)", pad);
}

}  // namespace
}  // namespace ipex::runtime
