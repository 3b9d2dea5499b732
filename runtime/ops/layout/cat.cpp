// Tensors joined, in memory that is kept between calls (result_memory.h).
//
//   ipex::cat(tensors, dim) -> Tensor    as aten::cat
//
// What joins the keys and values of a whole text with those of a new word, a step of a language model, makes large results at
// every call, and malloc would take their pages from the system each time. Runs of memory are copied by all threads, short ones
// in turn: the channels of each pixel, of images that are channels-last. What has no runs is aten's to copy.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/memory_format.h"
#include "packed/short_runs.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

bool fits(const at::Tensor& tensor, const at::Tensor& first, int64_t dim) {
  if (!is_plain_cpu(tensor) || wants_gradient(tensor)) return false;
  if (tensor.scalar_type() != first.scalar_type() || tensor.dim() != first.dim()) return false;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (i != dim && tensor.size(i) != first.size(i)) return false;
  }
  return true;
}

// Whether what lies at each place of the dimensions before `dim` is one run of memory.
bool has_runs(const at::Tensor& tensor, int64_t dim) {
  int64_t run = 1;
  for (int64_t i = tensor.dim() - 1; i >= dim; --i) {
    if (tensor.size(i) != 1 && tensor.stride(i) != run) return false;
    run *= tensor.size(i);
  }
  return true;
}

// Runs of memory, of so many bytes each, equally far apart.
struct Runs {
  const char* from;
  int64_t bytes, stride;
};

// A tensor's, where what lies at each place of the dimensions of `outer` is a run, whose dimensions are those of `inner`, the
// last one first.
std::optional<Runs> runs_of(const at::Tensor& tensor, at::IntArrayRef outer, at::IntArrayRef inner) {
  const auto size = static_cast<int64_t>(tensor.element_size());
  int64_t run = 1, stride = -1, count = 1;
  for (const int64_t i : inner) {
    if (tensor.size(i) != 1 && tensor.stride(i) != run) return std::nullopt;
    run *= tensor.size(i);
  }
  for (const int64_t i : outer) {
    if (tensor.size(i) == 1) continue;
    if (stride < 0) stride = tensor.stride(i);
    if (tensor.stride(i) != stride * count) return std::nullopt;
    count *= tensor.size(i);
  }
  return Runs{static_cast<const char*>(tensor.const_data_ptr()), run * size, stride * size};
}

// Into a dense result, whose runs have those of all tensors one after the other.
void copy_short_runs(at::ArrayRef<Runs> tensors, int64_t runs, char* to) {
  constexpr int64_t bytes_worth_waking = 1 << 16;
  int64_t whole = 0;
  for (const Runs& tensor : tensors) whole += tensor.bytes;
  parallel_for(runs, grain_of(runs, runs * whole, bytes_worth_waking), [&](int64_t first, int64_t last) {
    char* next = to + first * whole;
    for (int64_t i = first; i < last; ++i) {
      for (const Runs& tensor : tensors) {
        copy_short_run(next, tensor.from + i * tensor.stride, tensor.bytes);
        next += tensor.bytes;
      }
    }
  });
}

// Whether that was done. Not of large runs, nor of tiny ones.
bool copied_short_runs(at::TensorList tensors, int64_t dim, const at::Tensor& y) {
  constexpr int64_t least_bytes = 8, most_bytes = 1024;
  at::DimVector order;  // of memory, the last dimension first
  for (int64_t i = y.dim() - 1; i >= 0; --i) order.push_back(i);
  if (!y.is_contiguous()) {
    if (y.suggest_memory_format() != channels_last_of(y.dim() - 2)) return false;
    order.erase(order.end() - 2);
    order.insert(order.begin(), 1);
  }
  const auto place = std::find(order.begin(), order.end(), dim) - order.begin();
  const at::IntArrayRef all(order), inner = all.slice(0, place + 1), outer = all.slice(place + 1);
  c10::SmallVector<Runs, 8> found;
  for (const at::Tensor& tensor : tensors) {
    const std::optional<Runs> runs = runs_of(tensor, outer, inner);
    if (!runs || runs->bytes < least_bytes || runs->bytes > most_bytes) return false;
    found.push_back(*runs);
  }
  int64_t count = 1;
  for (const int64_t i : outer) count *= y.size(i);
  copy_short_runs(found, count, static_cast<char*>(y.mutable_data_ptr()));
  return true;
}

// A tensor's run, at place `index` of the dimensions before `dim`.
const char* run_of(const at::Tensor& tensor, int64_t dim, int64_t index) {
  int64_t offset = 0;
  for (int64_t i = dim - 1; i >= 0; --i) {
    offset += index % tensor.size(i) * tensor.stride(i);
    index /= tensor.size(i);
  }
  return static_cast<const char*>(tensor.const_data_ptr()) + offset * static_cast<int64_t>(tensor.element_size());
}

// Into a dense result. Threads have equal shares of its bytes, wherever these begin.
void copy_runs(at::TensorList tensors, int64_t dim, const at::Tensor& y) {
  constexpr int64_t bytes_worth_waking = 1 << 16, bytes_of_a_line = 64;
  std::vector<int64_t> ends;  // of each tensor's run in one of the result
  for (const at::Tensor& tensor : tensors) {
    const int64_t run = c10::multiply_integers(tensor.sizes().slice(dim)) * static_cast<int64_t>(tensor.element_size());
    ends.push_back(run + (ends.empty() ? 0 : ends.back()));
  }
  const int64_t whole = ends.back(), bytes = static_cast<int64_t>(y.nbytes());
  const int64_t lines = at::divup(bytes, bytes_of_a_line);
  char* const to = static_cast<char*>(y.mutable_data_ptr());
  parallel_for(lines, grain_of(lines, bytes, bytes_worth_waking), [&](int64_t begin, int64_t end) {
    const int64_t last = std::min(end * bytes_of_a_line, bytes);
    for (int64_t at = begin * bytes_of_a_line; at < last;) {
      const int64_t index = at / whole, within = at % whole;
      const auto i = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), within) - ends.begin());
      const int64_t skipped = within - (i == 0 ? 0 : ends[i - 1]), count = std::min(ends[i] - within, last - at);
      std::memcpy(to + at, run_of(tensors[i], dim, index) + skipped, count);
      at += count;
    }
  });
}

at::Tensor cat(at::TensorList tensors, int64_t dim) {
  if (tensors.empty() || at::autocast::is_autocast_enabled(at::kCPU)) return at::cat(tensors, dim);
  const at::Tensor& first = tensors.front();
  const int64_t joined = dim < 0 ? dim + first.dim() : dim;
  const bool fit = joined >= 0 && joined < first.dim() &&
                   std::all_of(tensors.begin(), tensors.end(), [&](const auto& t) { return fits(t, first, joined); });
  // What does not fit may be right all the same: empty vectors do not count, and dtypes are promoted.
  if (!fit) return at::cat(tensors, dim);

  std::vector<int64_t> sizes = first.sizes().vec();
  for (const at::Tensor& tensor : tensors.slice(1)) sizes[joined] += tensor.size(joined);
  at::Tensor y = empty_result(sizes, first.options().memory_format(common_format(tensors)));
  const bool have_runs =
      std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& t) { return has_runs(t, joined); });
  constexpr int64_t least_bytes_of_a_run = 1024;  // on the average: aten copies shorter ones faster
  const int64_t runs = c10::multiply_integers(y.sizes().slice(0, joined)) * static_cast<int64_t>(tensors.size());
  if (y.is_contiguous() && have_runs &&
      static_cast<int64_t>(y.nbytes()) >= std::max<int64_t>(1, runs) * least_bytes_of_a_run) {
    copy_runs(tensors, joined, y);
    return y;
  }
  if (copied_short_runs(tensors, joined, y)) return y;
  const at::AutoDispatchBelowADInplaceOrView guard;
  return at::cat_out(y, tensors, dim);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) { define(m, "cat(Tensor[] tensors, int dim) -> Tensor", cat); }

}  // namespace
}  // namespace ipex::runtime
