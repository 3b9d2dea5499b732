// Tensors whose elements move around, as the windows of a Swin transformer do, in one pass over memory.
//
//   ipex::roll(x, shifts, dims) -> Tensor    as aten::roll
//
// aten's goes through memory once for each dimension. Here each row, of the last dimension that is rolled and all behind it, is two
// runs of memory. Contiguous tensors of any dtype; all else is left to aten, also what aten refuses. A profiler shows that, with
// the reason, under the name of the op.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>

#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

const char* reason_for_aten(const at::Tensor& x, at::IntArrayRef shifts, at::IntArrayRef dims) {
  if (!is_plain_cpu(x)) return "it is not a plain CPU tensor";
  if (wants_gradient(x)) return "it requires a gradient";
  if (x.numel() == 0 || !x.is_contiguous()) return "it is empty, or not contiguous";
  const auto has = [&](int64_t d) { return d >= -x.dim() && d < x.dim(); };
  if (dims.empty() || dims.size() != shifts.size() || !std::all_of(dims.begin(), dims.end(), has)) {
    return "its dimensions and shifts do not fit";
  }
  return nullptr;
}

// How far each dimension is rolled, from 0 to its size.
at::DimVector distances(at::IntArrayRef sizes, at::IntArrayRef shifts, at::IntArrayRef dims) {
  at::DimVector found(sizes.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto d = static_cast<size_t>(dims[i] < 0 ? dims[i] + static_cast<int64_t>(sizes.size()) : dims[i]);
    found[d] = (found[d] + shifts[i] % sizes[d] + sizes[d]) % sizes[d];
  }
  return found;
}

at::Tensor roll(const at::Tensor& x, at::IntArrayRef shifts, at::IntArrayRef dims) {
  if (const char* reason = reason_for_aten(x, shifts, dims)) {
    const LeftToAten left(reason, "ipex::roll");
    return at::roll(x, shifts, dims);
  }
  const at::IntArrayRef sizes = x.sizes();
  const at::DimVector distance = distances(sizes, shifts, dims);
  size_t last = sizes.size() - 1;  // that is rolled
  while (last > 0 && distance[last] == 0) --last;
  const int64_t bytes = c10::multiply_integers(sizes.slice(last)) * static_cast<int64_t>(x.element_size());
  const int64_t rows = c10::multiply_integers(sizes.slice(0, last)), moved = bytes / sizes[last] * distance[last];
  const auto row_before = [&](int64_t row) {
    int64_t found = 0, step = 1;
    for (size_t d = last; d-- > 0; row /= sizes[d], step *= sizes[d]) {
      const int64_t at = row % sizes[d] - distance[d];
      found += (at < 0 ? at + sizes[d] : at) * step;
    }
    return found;
  };
  const at::Tensor y = empty_result(sizes, x.options());
  const char* from = static_cast<const char*>(x.const_data_ptr());
  char* to = static_cast<char*>(y.mutable_data_ptr());
  constexpr int64_t bytes_worth_waking = 1 << 16;
  parallel_for(rows, grain_of(rows, rows * bytes, bytes_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const char* before = from + row_before(row) * bytes;
      std::memcpy(to + row * bytes, before + bytes - moved, moved);
      std::memcpy(to + row * bytes + moved, before, bytes - moved);
    }
  });
  return y;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) { define(m, "roll(Tensor x, int[] shifts, int[] dims) -> Tensor", roll); }

}  // namespace
}  // namespace ipex::runtime
