// Products of bytes and of codes: every number against a plain sum, and nothing read or written beside what is there.
// Compiled for one instruction set, as runtime/kernels/portable.cpp is, and run by test_rows_product.py.
#define IPEX_ISA test
#define IPEX_WIDTH 4
#define IPEX_ROWS_OF_3_VECTORS 4
#define IPEX_ROWS_OF_2_VECTORS 6
#include "kernels/basics.inc"

#include "kernels/bytes_product.inc"
#include "kernels/codes_product.inc"

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace ipex::runtime::test {
namespace {

std::mt19937 generator(7);

int random_integer(int lowest, int highest) { return std::uniform_int_distribution<int>(lowest, highest)(generator); }

struct Case {
  int64_t rows, depth, columns;
};

int wrong_elements_of_bytes(const Case& c) {
  const int64_t words = ceil_divide(c.depth, bytes_of_a_word), stride = stride_of_bytes(c.depth);
  const int64_t panel_columns = panel_columns_of_bytes, panels = ceil_divide(c.columns, panel_columns);
  const int64_t first_row = 3, result_stride = c.columns + 5;
  std::vector<uint8_t> rows(c.rows * stride);
  std::vector<RowScale> row_scales(c.rows);
  for (uint8_t& x : rows) x = static_cast<uint8_t>(random_integer(0, 255));
  for (RowScale& x : row_scales) x = {static_cast<float>(random_integer(1, 9)), random_integer(0, 255)};
  std::vector<int8_t> plain(c.depth * c.columns), packed(panels * words * panel_columns * bytes_of_a_word);
  std::vector<float> scales(panels * panel_columns);
  std::vector<int32_t> sums(panels * panel_columns);
  for (int64_t column = 0; column < c.columns; ++column) {
    scales[column] = static_cast<float>(random_integer(1, 9));
    for (int64_t k = 0; k < c.depth; ++k) {
      const auto x = plain[k * c.columns + column] = static_cast<int8_t>(random_integer(-128, 127));
      sums[column] += x;
      const int64_t word = (column / panel_columns * words + k / 4) * panel_columns + column % panel_columns;
      packed[word * bytes_of_a_word + k % 4] = x;
    }
  }
  constexpr float beside = -12345;
  std::vector<float> result((first_row + c.rows) * result_stride, beside);
  const BytesProduct work{.rows = rows.data(),
                          .row_stride = stride,
                          .row_scales = row_scales.data(),
                          .first_row = first_row,
                          .words = reinterpret_cast<const uint32_t*>(packed.data()),
                          .depth = words,
                          .panel_size = words * panel_columns,
                          .column_scales = scales.data(),
                          .column_sums = sums.data(),
                          .steps = {nullptr, nullptr, 0, c.columns},
                          .result = result.data(),
                          .result_stride = result_stride};
  multiply_bytes(work, first_row, first_row + c.rows, 0, panels);
  int wrong = 0;
  for (int64_t row = 0; row < first_row + c.rows; ++row) {
    for (int64_t column = 0; column < result_stride; ++column) {
      float expected = beside;
      if (row >= first_row && column < c.columns) {
        const RowScale& x = row_scales[row - first_row];
        int32_t sum = 0;
        for (int64_t k = 0; k < c.depth; ++k) {
          sum += (rows[(row - first_row) * stride + k] - x.zero) * plain[k * c.columns + column];
        }
        expected = static_cast<float>(sum) * (scales[column] * x.scale);
      }
      wrong += result[row * result_stride + column] != expected;
    }
  }
  return wrong;
}

int wrong_elements_of_codes(const Case& c, CodeFormat format, int64_t group_size, bool has_offsets) {
  const int64_t groups = ceil_divide(c.depth, group_size), depth = groups * group_size;
  const int64_t panel_columns = panel_columns_of_codes, panels = ceil_divide(c.columns, panel_columns);
  const bool is_4_bit = format == CodeFormat::int4;
  std::vector<float> rows(c.rows * depth), group_sums(c.rows * groups), plain(depth * panels * panel_columns);
  std::vector<float> scales(panels * groups * panel_columns), offsets(scales.size());
  std::vector<uint8_t> codes(panels * depth * panel_columns / (is_4_bit ? 2 : 1));
  for (float& x : scales) x = static_cast<float>(random_integer(1, 9));
  for (float& x : offsets) x = has_offsets ? static_cast<float>(random_integer(-8, 8)) : 0;
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t k = 0; k < depth; ++k) {
      const auto x = rows[row * depth + k] = static_cast<float>(random_integer(-5, 5));
      group_sums[row * groups + k / group_size] += x;
    }
  }
  for (int64_t panel = 0; panel < panels; ++panel) {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t i = 0; i < panel_columns; ++i) {
        const int code = is_4_bit ? random_integer(-8, 7) : random_integer(-128, 127);
        const int64_t place = (panel * groups + k / group_size) * panel_columns + i;
        plain[(panel * depth + k) * panel_columns + i] = (static_cast<float>(code) - offsets[place]) * scales[place];
        if (is_4_bit) {
          const int64_t word = (panel * depth + k) / 8 * panel_columns + i;
          codes[word * 4 + k % 8 / 2] |= static_cast<uint8_t>((code & 15) << (k % 2 * 4));
        } else {
          codes[(panel * depth + k) * panel_columns + i] = static_cast<uint8_t>(code);
        }
      }
    }
  }
  const CodesMatrix matrix{format,     codes.data(), scales.data(), has_offsets ? offsets.data() : nullptr,
                           group_size, groups};
  std::vector<float> result(c.rows * c.columns), panel_floats(depth * panel_columns);
  multiply_codes({.rows = rows.data(),
                  .row_stride = depth,
                  .row_count = c.rows,
                  .group_sums = group_sums.data(),
                  .matrix = matrix,
                  .steps = {nullptr, nullptr, 0, c.columns},
                  .result = result.data()},
                 0, panels);
  int wrong = 0;
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t column = 0; column < c.columns; ++column) {
      double expected = 0;  // integers, all of them
      for (int64_t k = 0; k < depth; ++k) {
        expected += rows[row * depth + k] *
                    plain[(column / panel_columns * depth + k) * panel_columns + column % panel_columns];
      }
      wrong += result[row * c.columns + column] != expected;
    }
  }
  for (int64_t panel = 0; panel < panels; ++panel) {
    expand_codes(matrix, panel, panel_floats.data());
    for (int64_t i = 0; i < depth * panel_columns; ++i)
      wrong += panel_floats[i] != plain[panel * depth * panel_columns + i];
  }
  return wrong;
}

int wrong_bytes_of_a_row(int64_t count) {
  std::vector<float> row(count);
  std::vector<uint8_t> bytes(stride_of_bytes(count));
  for (float& x : row) x = static_cast<float>(random_integer(-1000, 3000));
  const RowScale x = quantize_row(row.data(), count, bytes.data());
  int wrong = 0;
  for (int64_t k = 0; k < count; ++k) {
    wrong += std::abs(static_cast<float>(bytes[k] - x.zero) * x.scale - row[k]) > 0.501f * x.scale;
  }
  return wrong;
}

}  // namespace
}  // namespace ipex::runtime::test

int main() {
  using namespace ipex::runtime;
  using namespace ipex::runtime::test;
  int cases = 0, wrong = 0;
  for (const int64_t rows : {1, 2, 3, 4, 5, 7, 9, 13}) {
    for (const int64_t columns : {1, 3, 4, 7, 8, 9, 17, 30}) {
      for (const int64_t depth : {1, 3, 4, 8, 31, 40, 65}) {
        wrong += wrong_elements_of_bytes({rows, depth, columns});
        for (const int64_t group_size : {8, 16, 40}) {
          for (const bool has_offsets : {false, true}) {
            wrong += wrong_elements_of_codes({rows, depth, columns}, CodeFormat::int8, group_size, has_offsets);
            wrong += wrong_elements_of_codes({rows, depth, columns}, CodeFormat::int4, group_size, has_offsets);
          }
        }
        cases += 13;
      }
    }
  }
  for (int64_t count = 1; count < 70; ++count, ++cases) wrong += wrong_bytes_of_a_row(count);
  std::printf("%d cases, %d wrong elements\n", cases, wrong);
  return wrong != 0;
}
