// aten copies a tensor number by number where what lies side by side in the copy does not in the tensor: five to ten times
// as slowly as memory allows. Here matrices of two dimensions, one that lies side by side in either, are transposed in
// registers, one for each place of the other dimensions. All else is aten's: it copies runs as fast as memory allows.
#include "packed/reordered_copy.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/kernels.h"
#include "threads/grain.h"

namespace ipex::runtime {
namespace {

struct Dimension {
  int64_t size, from, to;  // and its strides
};

// The slowest of `to` first; those that lie in both as one dimension would are one.
std::vector<Dimension> dimensions_of(const at::Tensor& from, const at::Tensor& to) {
  std::vector<Dimension> all;
  for (int64_t i = 0; i < to.dim(); ++i) {
    if (to.size(i) > 1) all.push_back({to.size(i), from.stride(i), to.stride(i)});
  }
  std::sort(all.begin(), all.end(), [](const Dimension& a, const Dimension& b) { return a.to > b.to; });
  std::vector<Dimension> joined;
  for (const Dimension& inner : all) {
    if (!joined.empty() && joined.back().from == inner.size * inner.from && joined.back().to == inner.size * inner.to) {
      joined.back() = {joined.back().size * inner.size, inner.from, inner.to};
    } else {
      joined.push_back(inner);
    }
  }
  return joined;
}

struct Matrices {
  Dimension rows, columns;  // of `from`: side by side in `to` are rows, in `from` columns
  std::vector<Dimension> others;

  int64_t count() const {
    int64_t count = 1;
    for (const Dimension& other : others) count *= other.size;
    return count;
  }
};

std::optional<Matrices> matrices_of(const at::Tensor& from, const at::Tensor& to) {
  constexpr int64_t least_size = 4, least_numbers = 256;  // aten has as little to do
  if (to.numel() < least_numbers) return {};
  std::vector<Dimension> all = dimensions_of(from, to);
  if (all.size() < 2 || all.back().to != 1) return {};
  const Dimension rows = all.back();
  all.pop_back();
  const auto columns = std::find_if(all.begin(), all.end(), [](const Dimension& d) { return d.from == 1; });
  if (rows.from == 1 || columns == all.end() || rows.size < least_size || columns->size < least_size) return {};
  Matrices found{rows, *columns, {}};
  all.erase(columns);
  found.others = std::move(all);
  return found;
}

template <typename T>
void transpose_all(const Matrices& all, const T* from, T* to,
                   void (*transpose)(const T*, int64_t, int64_t, int64_t, T*, int64_t)) {
  // In blocks of rows, so that one matrix is enough for all threads.
  constexpr int64_t rows_of_a_block = 64, numbers_worth_waking = 32768;
  const int64_t blocks = at::divup(all.rows.size, rows_of_a_block), pieces = all.count() * blocks;
  const int64_t numbers = all.count() * all.rows.size * all.columns.size;
  at::parallel_for(0, pieces, grain_of(pieces, numbers, numbers_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t block = i % blocks, count = std::min(end - i, blocks - block);  // of one matrix
      const int64_t first = block * rows_of_a_block, last = std::min(all.rows.size, first + count * rows_of_a_block);
      int64_t matrix = i / blocks, x = first * all.rows.from, y = first;
      for (auto other = all.others.rbegin(); other != all.others.rend(); ++other) {
        x += matrix % other->size * other->from;
        y += matrix % other->size * other->to;
        matrix /= other->size;
      }
      transpose(from + x, last - first, all.columns.size, all.rows.from, to + y, all.columns.to);
      i += count;
    }
  });
}

}  // namespace

void copy_reordered(const at::Tensor& from, const at::Tensor& to) {
  const int64_t bytes = static_cast<int64_t>(to.element_size());
  const auto matrices = bytes == 4 || bytes == 2 ? matrices_of(from, to) : std::nullopt;
  if (!matrices) {
    to.copy_(from);
  } else if (bytes == 4) {
    transpose_all(*matrices, static_cast<const uint32_t*>(from.const_data_ptr()),
                  static_cast<uint32_t*>(to.mutable_data_ptr()), kernels().transpose.words);
  } else {
    transpose_all(*matrices, static_cast<const uint16_t*>(from.const_data_ptr()),
                  static_cast<uint16_t*>(to.mutable_data_ptr()), kernels().transpose.halves);
  }
}

}  // namespace ipex::runtime
