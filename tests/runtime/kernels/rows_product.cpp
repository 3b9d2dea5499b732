// Products of rows that lie apart, into results that lie apart: every number against a plain sum, and nothing written beside
// the result. Compiled for one instruction set, as runtime/kernels/portable.cpp is, and run by test_rows_product.py.
#define IPEX_ISA test
#define IPEX_WIDTH 4
#define IPEX_ROWS_OF_3_VECTORS 4
#define IPEX_ROWS_OF_2_VECTORS 6
#include "kernels/basics.inc"

#include "kernels/few_rows.inc"
#include "kernels/many_rows.inc"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "check.h"

namespace ipex::runtime::test {
namespace {

// In 8 significant bits, as a bfloat16 has them.
float random_number() { return static_cast<float>(static_cast<int>(generator() % 255) - 127) / 64; }

uint32_t upper_half(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits >> 16;
}

struct Case {
  int64_t rows, depth, columns, vectors;
  NumberFormat format;
};

// Returns how many elements of the result, and of what lies between its rows, are wrong. By few rows, the result is also
// computed in pieces of `vectors_of_a_piece`, which must give the same bits.
int wrong_elements(const Case& c, bool by_few_rows, int64_t vectors_of_a_piece = 0) {
  const int64_t panel_columns = c.vectors * width, panels = ceil_divide(c.columns, panel_columns);
  const int64_t in_word = c.format == NumberFormat::pairs ? 2 : 1, words = ceil_divide(c.depth, in_word);
  const int64_t row_stride = c.depth + 3, result_stride = c.columns + 5;
  constexpr float beside = -12345;

  // What lies between the rows must not be multiplied.
  std::vector<float> rows(c.rows * row_stride, std::numeric_limits<float>::quiet_NaN());
  std::vector<float> result(c.rows * result_stride, beside), plain(c.depth * c.columns), bias(c.columns);
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t k = 0; k < c.depth; ++k) rows[row * row_stride + k] = random_number();
  }
  std::vector<uint32_t> packed(panels * words * panel_columns);
  for (int64_t k = 0; k < c.depth; ++k) {
    for (int64_t column = 0; column < c.columns; ++column) {
      const float x = plain[k * c.columns + column] = random_number();
      uint32_t& word = packed[(column / panel_columns * words + k / in_word) * panel_columns + column % panel_columns];
      if (in_word == 1) {
        __builtin_memcpy(&word, &x, sizeof(x));
      } else {
        word |= upper_half(x) << (k % 2 * 16);
      }
    }
  }
  for (float& x : bias) x = random_number();
  std::vector<float> added(c.rows * c.columns);  // dense, whatever the result is
  for (float& x : added) x = random_number();

  const ElementwiseStep add{Operation::add, 0, 0, 0, added.data(), OperandSpread::full};
  const RowsProduct work{.rows = rows.data(),
                         .row_stride = row_stride,
                         .row_count = c.rows,
                         .matrix = {c.format, packed.data(), c.depth},
                         .panel_columns = panel_columns,
                         .panel_size = words * panel_columns,
                         .steps = {bias.data(), &add, 1, c.columns},
                         .result = result.data(),
                         .result_stride = result_stride};
  if (by_few_rows) {
    multiply_few_rows(work, 0, ceil_divide(c.columns, width));
  } else {
    multiply_many_rows<FloatProducts>(work, 0, c.rows, 0, panels);
  }

  int wrong = 0;
  if (vectors_of_a_piece > 0) {
    const std::vector<float> at_once = std::exchange(result, std::vector<float>(result.size(), beside));
    RowsProduct again = work;
    again.result = result.data();
    const int64_t vectors = ceil_divide(c.columns, width);
    for (int64_t first = 0; first < vectors; first += vectors_of_a_piece) {
      multiply_few_rows(again, first, std::min(vectors, first + vectors_of_a_piece));
    }
    wrong += std::memcmp(at_once.data(), result.data(), result.size() * sizeof(float)) != 0;
  }
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t column = 0; column < result_stride; ++column) {
      const float actual = result[row * result_stride + column];
      if (column >= c.columns) {
        wrong += row + 1 < c.rows && actual != beside;
        continue;
      }
      double expected = bias[column] + added[row * c.columns + column], scale = 1;
      for (int64_t k = 0; k < c.depth; ++k) {
        const double product = static_cast<double>(rows[row * row_stride + k]) * plain[k * c.columns + column];
        expected += product;
        scale += std::abs(product);
      }
      wrong += !(std::abs(actual - expected) <= 1e-6 * scale);
    }
  }
  return wrong;
}

}  // namespace
}  // namespace ipex::runtime::test

int main() {
  using namespace ipex::runtime;
  int cases = 0, wrong = 0;
  for (const int64_t depth : {1, 2, 63, 64, 65, 129, 1100}) {
    for (const int64_t columns : {1, 4, 7, 16, 33}) {
      for (const int64_t vectors : {1, 2, 3, 4}) {
        for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 20}) {
          for (const NumberFormat format : {NumberFormat::floats, NumberFormat::pairs}) {
            const test::Case c{rows, depth, columns, vectors, format};
            if (rows <= most_few_rows) wrong += test::wrong_elements(c, true, 1 + cases % 7), ++cases;
            if (format == NumberFormat::floats) wrong += test::wrong_elements(c, false), ++cases;
          }
        }
      }
    }
  }
  return test::report(cases, wrong);
}
