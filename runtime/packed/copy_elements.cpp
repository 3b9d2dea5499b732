#include "packed/copy_elements.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/copy.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/kernels.h"
#include "packed/short_runs.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

constexpr int64_t elements_worth_waking = 32768;

struct Dimension {
  int64_t size, to_stride, from_stride;
};
using Dimensions = c10::SmallVector<Dimension, 6>;

// The dimensions of both tensors, in the order of `to`; those that lie in one piece in both are one.
Dimensions joint_dimensions(at::IntArrayRef sizes, at::IntArrayRef to_strides, at::IntArrayRef from_strides) {
  Dimensions all;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) all.push_back({sizes[d], to_strides[d], from_strides[d]});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Dimension& a, const Dimension& b) { return a.to_stride > b.to_stride; });
  Dimensions joint;
  for (const Dimension& inner : all) {
    const auto lies_in = [&](int64_t outer, int64_t stride) { return outer == inner.size * stride; };
    if (!joint.empty() && lies_in(joint.back().to_stride, inner.to_stride) &&
        lies_in(joint.back().from_stride, inner.from_stride)) {
      joint.back() = {joint.back().size * inner.size, inner.to_stride, inner.from_stride};
    } else {
      joint.push_back(inner);
    }
  }
  return joint;
}

// Places in the memory of both, for each index of some dimensions. The last one is the innermost.
class Places {
 public:
  explicit Places(const Dimensions& dimensions) : dimensions_(dimensions) {
    for (const Dimension& d : dimensions) count_ *= d.size;
  }

  int64_t count() const { return count_; }

  struct Place {
    int64_t to = 0, from = 0;
  };
  Place at(int64_t index) const {
    Place place;
    for (size_t d = dimensions_.size(); d-- > 0; index /= dimensions_[d].size) {
      place.to += index % dimensions_[d].size * dimensions_[d].to_stride;
      place.from += index % dimensions_[d].size * dimensions_[d].from_stride;
    }
    return place;
  }

 private:
  const Dimensions& dimensions_;
  int64_t count_ = 1;
};

// Tables, one for each place in the dimensions before: rows of `from`, columns of `to`.
struct Tables {
  Dimension rows, columns;
  Dimensions outer;
};

// Empty where the tensors are no tables that one is the other's transpose of, or such small ones that tiles stay empty.
std::optional<Tables> transposed_tables(Dimensions dimensions) {
  constexpr int64_t smallest_side = 4;
  const auto take = [&](auto&& is_wanted) -> std::optional<Dimension> {
    const auto found = std::find_if(dimensions.begin(), dimensions.end(), is_wanted);
    if (found == dimensions.end()) return std::nullopt;
    const Dimension taken = *found;
    dimensions.erase(found);
    return taken.size < smallest_side ? std::nullopt : std::optional(taken);
  };
  const auto rows = take([](const Dimension& d) { return d.to_stride == 1 && d.from_stride > 1; });
  const auto columns = take([](const Dimension& d) { return d.from_stride == 1 && d.to_stride > 1; });
  return rows && columns ? std::optional(Tables{*rows, *columns, dimensions}) : std::nullopt;
}

template <typename T>
void transpose(const Tables& tables, const T* from, T* to,
               void (*kernel)(const T*, int64_t, int64_t, int64_t, T*, int64_t)) {
  RECORD_FUNCTION("ipex::copy_transposed", {});
  // In blocks of columns, so that one table is enough for all threads.
  constexpr int64_t block_columns = 64;
  const Dimension &rows = tables.rows, &columns = tables.columns;
  const Places places(tables.outer);
  const int64_t blocks = at::divup(columns.size, block_columns), pieces = places.count() * blocks;
  const int64_t elements = places.count() * rows.size * columns.size;
  parallel_for(pieces, grain_of(pieces, elements, elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece % blocks * block_columns;
      const auto [to_place, from_place] = places.at(piece / blocks);
      kernel(from + from_place + first, rows.size, std::min(block_columns, columns.size - first), rows.from_stride,
             to + to_place + first * columns.to_stride, columns.to_stride);
    }
  });
}

bool lies_in_pieces(const Dimensions& dimensions, int64_t element_size) {
  const int64_t smallest_piece = element_size == 1 ? 8 : 16;  // bytes: aten copies smaller ones faster
  return !dimensions.empty() && dimensions.back().to_stride == 1 && dimensions.back().from_stride == 1 &&
         dimensions.back().size * element_size >= smallest_piece;
}

// Pieces of memory in blocks. Those of a row lie behind one another in `to`, those of a column closer to one another in `from`: so do
// heads that lie in tokens and become batches. Row after row would read `from` in large steps, and all its pages once for each row.
struct Blocks {
  static constexpr int64_t rows_of_one = 16, columns_of_one = 32;

  Dimension columns{1, 0, 0}, rows{1, 0, 0};
  Dimensions outer;

  explicit Blocks(Dimensions pieces) : outer(std::move(pieces)) {
    if (outer.empty()) return;
    rows = outer.back();
    outer.pop_back();
    const auto closest = std::min_element(outer.begin(), outer.end(), [](const Dimension& a, const Dimension& b) {
      return a.from_stride < b.from_stride;
    });
    if (closest == outer.end() || closest->from_stride >= rows.from_stride) return;
    columns = *closest;
    outer.erase(closest);
  }
};

void copy_pieces(Dimensions dimensions, int64_t element_size, const char* from, char* to) {
  RECORD_FUNCTION("ipex::copy_pieces", {});
  constexpr int64_t longest_short_piece = 256;  // bytes
  const int64_t size = dimensions.back().size, bytes = size * element_size;
  dimensions.pop_back();
  const Blocks all(dimensions);
  const Dimension &rows = all.rows, &columns = all.columns;
  const Places places(all.outer);
  const int64_t down = at::divup(columns.size, Blocks::columns_of_one),
                across = at::divup(rows.size, Blocks::rows_of_one);
  const int64_t blocks = places.count() * down * across;
  const int64_t elements = places.count() * columns.size * rows.size * size;
  parallel_for(blocks, grain_of(blocks, elements, elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const auto [to_place, from_place] = places.at(block / (down * across));
      const int64_t first_column = block / across % down * Blocks::columns_of_one;
      const int64_t first_row = block % across * Blocks::rows_of_one;
      const int64_t last_column = std::min(columns.size, first_column + Blocks::columns_of_one);
      const int64_t last_row = std::min(rows.size, first_row + Blocks::rows_of_one);
      for (int64_t column = first_column; column < last_column; ++column) {
        for (int64_t row = first_row; row < last_row; ++row) {
          const int64_t place = to_place + column * columns.to_stride + row * rows.to_stride;
          const int64_t source = from_place + column * columns.from_stride + row * rows.from_stride;
          if (bytes <= longest_short_piece) {
            copy_short_run(to + place * element_size, from + source * element_size, bytes);
          } else {
            std::memcpy(to + place * element_size, from + source * element_size, static_cast<size_t>(bytes));
          }
        }
      }
    }
  });
}

}  // namespace

void copy_elements(const at::Tensor& to, at::IntArrayRef to_strides, const at::Tensor& from,
                   at::IntArrayRef from_strides, at::IntArrayRef sizes) {
  if (c10::multiply_integers(sizes) > 0) {
    const Dimensions dimensions = joint_dimensions(sizes, to_strides, from_strides);
    const auto element_size = static_cast<int64_t>(from.element_size());
    if (lies_in_pieces(dimensions, element_size)) {
      return copy_pieces(dimensions, element_size, static_cast<const char*>(from.const_data_ptr()),
                         static_cast<char*>(to.mutable_data_ptr()));
    }
    const auto transpose_all = [&](const Tables& tables, auto kernel, auto number) {
      using T = decltype(number);
      transpose(tables, static_cast<const T*>(from.const_data_ptr()), static_cast<T*>(to.mutable_data_ptr()), kernel);
    };
    const bool has_kernel = element_size == sizeof(uint32_t) || element_size == sizeof(uint16_t);
    if (const auto tables = has_kernel ? transposed_tables(dimensions) : std::nullopt) {
      return element_size == sizeof(uint32_t) ? transpose_all(*tables, kernels().transpose.words, uint32_t{})
                                              : transpose_all(*tables, kernels().transpose.halves, uint16_t{});
    }
  }
  at::as_strided(to, sizes, to_strides).copy_(at::as_strided(from, sizes, from_strides));
}

void copy_elements(const at::Tensor& to, const at::Tensor& from) {
  copy_elements(to, to.strides(), from, from.strides(), to.sizes());
}

}  // namespace ipex::runtime
