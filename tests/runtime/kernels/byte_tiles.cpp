// Products of bytes on tiles: every number against a plain sum, and nothing written beside what is there. Compiled as
// runtime/kernels/amx.cpp is, and run by test_rows_product.py.
#define IPEX_ISA test
#define IPEX_ROWS_OF_3_VECTORS 8
#define IPEX_ROWS_OF_2_VECTORS 8
#include "kernels/basics.inc"

#include "kernels/bytes_product.inc"
#include "kernels/many_rows.inc"
#include "kernels/quick_activations.inc"
#include "kernels/tiles_in_use.inc"
// Needs these.
#include "kernels/tiles.inc"
// Needs all.
#include "kernels/byte_tiles.inc"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "check.h"

namespace ipex::runtime::test {
namespace {

struct Case {
  int64_t rows, depth, columns;
};

// A matrix as it is and in panels.
struct Matrix {
  explicit Matrix(const Case& c)
      : words(ceil_divide(c.depth, bytes_of_a_word)),
        panels(ceil_divide(c.columns, panel_columns_of_bytes)),
        plain(c.depth * c.columns),
        packed(panels * words * panel_columns_of_bytes * bytes_of_a_word),
        sums(panels * panel_columns_of_bytes) {
    for (int64_t column = 0; column < c.columns; ++column) {
      for (int64_t k = 0; k < c.depth; ++k) {
        const auto x = plain[k * c.columns + column] = static_cast<int8_t>(random_integer(-128, 127));
        sums[column] += x;
        const int64_t panel = column / panel_columns_of_bytes, in_panel = column % panel_columns_of_bytes;
        packed[((panel * words + k / 4) * panel_columns_of_bytes + in_panel) * bytes_of_a_word + k % 4] = x;
      }
    }
  }

  const uint32_t* packed_words() const { return reinterpret_cast<const uint32_t*>(packed.data()); }

  int64_t words, panels;
  std::vector<int8_t> plain, packed;
  std::vector<int32_t> sums;
};

std::vector<uint8_t> random_numbers(int64_t count) {
  std::vector<uint8_t> numbers(count);
  for (uint8_t& x : numbers) x = static_cast<uint8_t>(random_integer(0, 255));
  return numbers;
}

int32_t sum_of(const Case& c, const Matrix& matrix, const uint8_t* row, int64_t column) {
  int32_t sum = 0;
  for (int64_t k = 0; k < c.depth; ++k) sum += row[k] * matrix.plain[k * c.columns + column];
  return sum;
}

int wrong_elements_of_scaled_rows(const Case& c) {
  const Matrix matrix(c);
  const int64_t stride = stride_of_bytes(c.depth), first_row = 3, result_stride = c.columns + 5;
  const std::vector<uint8_t> rows = random_numbers(c.rows * stride);
  std::vector<RowScale> row_scales(c.rows);
  for (RowScale& x : row_scales) x = {static_cast<float>(random_integer(1, 9)), random_integer(0, 255)};
  std::vector<float> scales(matrix.panels * panel_columns_of_bytes);
  for (float& x : scales) x = static_cast<float>(random_integer(1, 9));
  constexpr float beside = -12345;
  std::vector<float> result((first_row + c.rows) * result_stride, beside);
  const BytesProduct work{.rows = rows.data(),
                          .row_stride = stride,
                          .row_scales = row_scales.data(),
                          .first_row = first_row,
                          .words = matrix.packed_words(),
                          .depth = matrix.words,
                          .panel_size = matrix.words * panel_columns_of_bytes,
                          .column_scales = scales.data(),
                          .column_sums = matrix.sums.data(),
                          .steps = {nullptr, nullptr, 0, c.columns},
                          .result = result.data(),
                          .result_stride = result_stride};
  multiply_bytes_by_tiles(work, first_row, first_row + c.rows, 0, matrix.panels);
  int wrong = 0;
  for (int64_t row = 0; row < first_row + c.rows; ++row) {
    for (int64_t column = 0; column < result_stride; ++column) {
      float expected = beside;
      if (row >= first_row && column < c.columns) {
        const RowScale& x = row_scales[row - first_row];
        const int32_t sum = sum_of(c, matrix, rows.data() + (row - first_row) * stride, column);
        expected = static_cast<float>(sum - x.zero * matrix.sums[column]) * (scales[column] * x.scale);
      }
      wrong += result[row * result_stride + column] != expected;
    }
  }
  return wrong;
}

// All numbers are such that floats hold them exactly. Panels and rows are multiplied in two pieces.
int wrong_elements_of_numbers(const Case& c, bool adds, bool has_steps, bool rounds) {
  const Matrix matrix(c);
  const int64_t columns = matrix.panels * panel_columns_of_bytes, size = c.rows * c.columns;
  const std::vector<uint8_t> rows = random_numbers(c.rows * c.depth), other = random_numbers(size);
  std::vector<int32_t> offsets(columns);
  std::vector<float> scales(columns), shifts(columns);
  for (int64_t column = 0; column < c.columns; ++column) {
    offsets[column] = matrix.sums[column] * random_integer(0, 255);
    scales[column] = std::ldexp(1.f, -random_integer(8, 12));
    shifts[column] = static_cast<float>(random_integer(-9, 200));
  }
  constexpr float beside = -12345;
  std::vector<float> floats(size + 9, beside);
  std::vector<uint8_t> numbers(size + 9, 77);
  const ElementwiseStep steps[] = {{Operation::mul_number, 2, 0, 0, nullptr, OperandSpread::all},
                                   {Operation::add_number, 1, 0, 0, nullptr, OperandSpread::all}};
  const ByteTilesProduct work{.rows = rows.data(),
                              .row_stride = c.depth,
                              .words = matrix.packed_words(),
                              .depth = matrix.words,
                              .panel_size = matrix.words * panel_columns_of_bytes,
                              .offsets = offsets.data(),
                              .scales = scales.data(),
                              .shifts = shifts.data(),
                              .other = adds ? other.data() : nullptr,
                              .factor = 0.5f,
                              .steps = {nullptr, steps, has_steps ? 2 : 0, c.columns},
                              .floats = rounds ? nullptr : floats.data(),
                              .numbers = rounds ? numbers.data() : nullptr,
                              .least = 11,
                              .most = 240,
                              .rounding = {0.25f, 3}};
  const int64_t middle_row = c.rows / 2, middle_panel = matrix.panels / 2;
  multiply_numbers_by_tiles(work, 0, middle_row, 0, matrix.panels);
  multiply_numbers_by_tiles(work, middle_row, c.rows, 0, middle_panel);
  multiply_numbers_by_tiles(work, middle_row, c.rows, middle_panel, matrix.panels);
  int wrong = 0;
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t column = 0; column < c.columns; ++column) {
      const int64_t i = row * c.columns + column;
      const int32_t sum = sum_of(c, matrix, rows.data() + row * c.depth, column) - offsets[column];
      double y = static_cast<double>(sum) * scales[column] + shifts[column] + (adds ? other[i] * 0.5 : 0);
      if (has_steps) y = y * 2 + 1;
      if (has_steps && rounds) y = y * 0.25 + 3;
      const double least = has_steps ? 0 : 11, most = has_steps ? 255 : 240;
      wrong += rounds ? numbers[i] != std::nearbyint(std::fmin(std::fmax(y, least), most)) : floats[i] != y;
    }
  }
  for (int64_t i = size; i < size + 9; ++i) wrong += floats[i] != beside || numbers[i] != 77;
  return wrong;
}

// Rows in runs that overlap, of which the last ones of each line are dropped. Rows are multiplied in two pieces.
int wrong_elements_of_runs(const Case& any) {
  const int64_t count = random_integer(1, 5), of_a_run = random_integer(1, 100),
                filled = bytes_of_whole_tiles(of_a_run);
  const Case c{any.rows, count * filled, any.columns};
  Matrix matrix(c);
  const int64_t columns = matrix.panels * panel_columns_of_bytes, stride = random_integer(1, 70);
  std::vector<int64_t> begins(count);
  for (int64_t& begin : begins) begin = random_integer(0, 200);
  const std::vector<uint8_t> image = random_numbers((c.rows - 1) * stride + 200 + filled);
  const int64_t row_width = random_integer(1, 40);
  const RowRuns runs{begins.data(), count, row_width, random_integer(1, static_cast<int>(row_width))};
  const int64_t in_last = std::min(c.rows % row_width, runs.result_width);
  const int64_t size = (c.rows / row_width * runs.result_width + in_last) * c.columns;
  const std::vector<int32_t> offsets(columns);
  const std::vector<float> scales(columns, 1), shifts(columns);
  constexpr float beside = -12345;
  std::vector<float> floats(size + 9, beside);
  const ByteTilesProduct work{.rows = image.data(),
                              .row_stride = stride,
                              .runs = &runs,
                              .words = matrix.packed_words(),
                              .depth = matrix.words,
                              .panel_size = matrix.words * panel_columns_of_bytes,
                              .offsets = offsets.data(),
                              .scales = scales.data(),
                              .shifts = shifts.data(),
                              .steps = {nullptr, nullptr, 0, c.columns},
                              .floats = floats.data()};
  const int64_t middle = c.rows / 2;
  multiply_numbers_by_tiles(work, 0, middle, 0, matrix.panels);
  multiply_numbers_by_tiles(work, middle, c.rows, 0, matrix.panels);
  std::vector<uint8_t> row(c.depth);
  int wrong = 0;
  const float* result = floats.data();
  for (int64_t i = 0; i < c.rows; ++i) {
    if (i % row_width >= runs.result_width) continue;
    for (int64_t run = 0; run < count; ++run) {
      std::copy_n(image.data() + i * stride + begins[run], filled, row.data() + run * filled);
    }
    for (int64_t column = 0; column < c.columns; ++column) {
      wrong += *result++ != static_cast<float>(sum_of(c, matrix, row.data(), column));
    }
  }
  wrong += result != floats.data() + size;
  for (; result != floats.data() + size + 9; ++result) wrong += *result != beside;
  return wrong;
}

int run() {
  int cases = 0, wrong = 0;
  const auto count = [&](int found, const Case& c, const char* what) {
    ++cases;
    wrong += found;
    if (found) std::printf("%s: %d wrong of %ld x %ld x %ld\n", what, found, c.rows, c.depth, c.columns);
  };
  for (int i = 0; i < 200; ++i) {
    const Case any{random_integer(1, 100), random_integer(1, 300), random_integer(1, 200)};
    count(wrong_elements_of_scaled_rows(any), any, "scaled rows");
    const Case words{any.rows, ceil_divide(any.depth, bytes_of_a_word) * bytes_of_a_word, any.columns};
    for (const bool rounds : {false, true}) {
      for (const bool has_steps : {false, true}) {
        count(wrong_elements_of_numbers(words, false, has_steps, rounds), words, "numbers");
      }
    }
    count(wrong_elements_of_numbers(words, true, false, true), words, "numbers that are added to");
    count(wrong_elements_of_runs(any), any, "rows in runs");
  }
  // More rows than the second cache is given at once.
  const Case many{300, 4096, 70};
  count(wrong_elements_of_scaled_rows(many), many, "scaled rows");
  return report(cases, wrong);
}

}  // namespace
}  // namespace ipex::runtime::test

int main() {
  using namespace ipex::runtime::test;
  return may_use_tiles() ? run() : 2;
}
