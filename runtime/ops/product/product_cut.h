// How a product of rows and a matrix in panels (kernels/rows_product.h) is cut for a number of threads. It is computed from
// sizes alone, without torch, so that a test can ask for the cut on any machine.
//
// The cut does not change a result: kernels sum a column of a row in one order, whatever is computed beside it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ipex::runtime {

// Ceil-divide: how many parts of `size` cover `count`.
constexpr int64_t parts_that_cover(int64_t count, int64_t size) { return (count + size - 1) / size; }

struct ProductSize {
  int64_t rows, depth, columns, panel_columns;
};

// For few rows: which columns a thread multiplies, counted in registers. What is read is the matrix, so that is what is
// shared equally. Where it costs next to nothing, cuts lie between groups of panels, which are read side by side; else between
// panels, or within one.
struct ColumnCut {
  int64_t vectors, unit, threads;

  // Thread i has the registers from first(i) to first(i + 1).
  int64_t first(int64_t i) const { return std::min(vectors, parts_that_cover(vectors, unit) * i / threads * unit); }
  int64_t largest_share() const {
    return std::min(vectors, parts_that_cover(parts_that_cover(vectors, unit), threads) * unit);
  }
  // Of all threads' time: 1 where all of them have equal shares.
  double efficiency() const { return static_cast<double>(vectors) / static_cast<double>(largest_share() * threads); }
};

// `width` columns fill a register.
ColumnCut column_cut(const ProductSize& size, int64_t width, int64_t threads);

// For many rows: how many parts the rows are cut into, and how many the panels. Each thread has one part of each, which it
// takes in `pieces`: a thread that is held up leaves some to the others.
struct ProductParts {
  int64_t rows, panels, pieces_of_a_part;
};

ProductParts parts_of(const ProductSize& size, int64_t threads);

// The rows where part `i` begins.
inline int64_t first_row_of_part(const ProductSize& size, const ProductParts& parts, int64_t i) {
  return size.rows * i / parts.rows;
}

// Of all threads' time: 1 where all of them have equal shares.
double efficiency(const ProductSize& size, const ProductParts& parts, int64_t threads);

}  // namespace ipex::runtime
