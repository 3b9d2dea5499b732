// Products of bytes and of codes: every number against a plain sum, and nothing read or written beside what is there.
// Compiled for one instruction set, as the files in runtime/kernels are, and run by test_rows_product.py.
#define IPEX_ISA test
#ifndef IPEX_WIDTH
#define IPEX_WIDTH 4
#endif
#define IPEX_ROWS_OF_3_VECTORS 4
#define IPEX_ROWS_OF_2_VECTORS 6
#include "kernels/basics.inc"

#include "kernels/bytes_product.inc"
#include "kernels/codes_product.inc"

#include <cmath>
#include <vector>

#include "check.h"

namespace ipex::runtime::test {
namespace {

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

// A finite code of one number, from the lowest bits up, and the number.
struct Code {
  uint32_t bits;
  double number;
};

// An 8-bit float by its definition.
double short_float(uint32_t bits, int mantissa, int bias) {
  const int exponent = (bits & 127) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa)
                                         : std::ldexp((1 << mantissa) + fraction, exponent - bias - mantissa);
  return bits & 128 ? -magnitude : magnitude;
}

// In no order, and such that sums are exact.
constexpr float table[numbers_of_a_table] = {3, -1, 0, 0.5f, -8, 7, 100, -99, 2, 11, -0.25f, 64, 5, -6, 1, -31};

// The 8-bit floats that are taken are such that sums are exact: small exponents, but with all below the least normal one.
Code random_code(CodeFormat format) {
  if (format == CodeFormat::e4m3 || format == CodeFormat::e5m2) {
    const bool is_e4m3 = format == CodeFormat::e4m3;
    const auto bits = static_cast<uint32_t>(random_integer(0, is_e4m3 ? 31 : 15) | random_integer(0, 1) << 7);
    return {bits, is_e4m3 ? short_float(bits, 3, 7) : short_float(bits, 2, 15)};
  }
  if (format == CodeFormat::bf16) {
    const auto number = static_cast<float>(random_integer(-127, 127));
    uint32_t bits;
    __builtin_memcpy(&bits, &number, sizeof(bits));
    return {bits >> 16, number};
  }
  if (format == CodeFormat::table) {
    const int code = random_integer(0, 15);
    return {static_cast<uint32_t>(code), static_cast<double>(table[code])};
  }
  const int code = format == CodeFormat::int4 ? random_integer(-8, 7) : random_integer(-128, 127);
  return {static_cast<uint32_t>(code), static_cast<double>(code)};
}

int wrong_elements_of_codes(const Case& c, CodeFormat format, int64_t group_size, bool has_offsets) {
  const int64_t groups = ceil_divide(c.depth, group_size), depth = groups * group_size;
  const int64_t panel_columns = panel_columns_of_codes, panels = ceil_divide(c.columns, panel_columns);
  const CodeWord word =
      format == CodeFormat::int8 ? CodeWord{ByteCodes::in_word, ByteCodes::bytes_of_a_column} : word_of(format);
  const auto bits_of_a_code = static_cast<int>(8 * word.bytes / word.numbers);
  std::vector<float> rows(c.rows * depth), group_sums(c.rows * groups), plain(depth * panels * panel_columns);
  std::vector<float> scales(panels * groups * panel_columns), offsets(scales.size());
  std::vector<uint8_t> codes(panels * depth * panel_columns * word.bytes / word.numbers);
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
        const Code code = random_code(format);
        const int64_t place = (panel * groups + k / group_size) * panel_columns + i;
        plain[(panel * depth + k) * panel_columns + i] = static_cast<float>(
            (code.number - static_cast<double>(offsets[place])) * static_cast<double>(scales[place]));
        const int64_t first = ((panel * depth + k) / word.numbers * panel_columns + i) * word.bytes;
        const int64_t bit = k % word.numbers * bits_of_a_code;
        for (int64_t b = 0; b < bits_of_a_code; ++b) {
          codes[first + (bit + b) / 8] |= static_cast<uint8_t>((code.bits >> b & 1) << (bit + b) % 8);
        }
      }
    }
  }
  const CodesMatrix matrix{format,     codes.data(), scales.data(), has_offsets ? offsets.data() : nullptr,
                           group_size, groups,       table};
  std::vector<float> result(c.rows * c.columns), panel_floats(depth * panel_columns);
  std::vector<int8_t> digits(c.rows * most_digits * depth);
  std::vector<int32_t> starts(c.rows * most_digits * groups);
  std::vector<float> row_scales(c.rows * groups);
  int wrong = 0;
  const auto check = [&](const DigitRows& rows_of_digits, char* room = nullptr) {
    std::fill(result.begin(), result.end(), -1.f);
    multiply_codes({.rows = rows.data(),
                    .row_stride = depth,
                    .row_count = c.rows,
                    .group_sums = group_sums.data(),
                    .digits = rows_of_digits,
                    .matrix = matrix,
                    .steps = {nullptr, nullptr, 0, c.columns},
                    .result = result.data()},
                   0, panels, room);
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t column = 0; column < c.columns; ++column) {
        double expected = 0;  // exact, as the sums of floats are here
        for (int64_t k = 0; k < depth; ++k) {
          expected += rows[row * depth + k] *
                      plain[(column / panel_columns * depth + k) * panel_columns + column % panel_columns];
        }
        wrong += result[row * c.columns + column] != expected;
      }
    }
  };
  check({});
  const auto to_digits = codes_product_kernels.to_digits;
  if (to_digits && (format == CodeFormat::int8 || format == CodeFormat::int4)) {
    const DigitRows rows_of_digits{most_digits, digits.data(), starts.data(), row_scales.data()};
    for (int64_t row = 0; row < c.rows; ++row) {
      std::vector<float> sums(groups);
      to_digits(&rows[row * depth], matrix, row, c.rows, rows_of_digits, sums.data());
      wrong += row_scales[row * groups] == 0;
      for (int64_t group = 0; group < groups; ++group) wrong += sums[group] != group_sums[row * groups + group];
    }
    std::vector<char> room(depth * panel_columns);
    check(rows_of_digits);
    check(rows_of_digits, room.data());
    row_scales[c.rows / 2 * groups] = 0;
    check(rows_of_digits);
    check(rows_of_digits, room.data());
  }
  for (int64_t panel = 0; panel < panels; ++panel) {
    expand_codes(matrix, panel, 0, groups, panel_floats.data());
    for (int64_t i = 0; i < depth * panel_columns; ++i)
      wrong += panel_floats[i] != plain[panel * depth * panel_columns + i];
  }
  return wrong;
}

// Numbers of 23 bits are what their digits say, and rows that have none are refused.
int wrong_digits(int64_t groups) {
  const auto to_digits = codes_product_kernels.to_digits;
  if (!to_digits) return 0;
  const int64_t depth = 8 * groups;
  const CodesMatrix matrix{CodeFormat::int8, nullptr, nullptr, nullptr, 8, groups};
  std::vector<float> row(depth);
  std::vector<int8_t> digits(most_digits * depth);
  std::vector<int32_t> starts(most_digits * groups);
  for (float& x : row) x = std::ldexp(static_cast<float>(random_integer(-4000000, 4000000)), -30);
  std::vector<float> scales(groups);
  const DigitRows to{most_digits, digits.data(), starts.data(), scales.data()};
  to_digits(row.data(), matrix, 0, 1, to, nullptr);
  int wrong = scales[0] == 0;
  for (int64_t k = 0; k < depth; ++k) {
    const auto digit = [&](int number) { return digits[(k / 4 * most_digits + number) * 4 + k % 4]; };
    const int whole = digit(2) * 65536 + digit(1) * 256 + digit(0);
    wrong += static_cast<float>(whole) * scales[k / 8] != row[k];
    // Kernels take codes from 0 up, where 128 stands for 0.
    for (int number = 0; number < most_digits; ++number) starts[k / 8 * most_digits + number] += 128 * digit(number);
  }
  for (const int32_t left : starts) wrong += left != 0;
  for (const float odd : {INFINITY, -INFINITY, NAN, 0x1p-110f}) {
    if (std::abs(odd) < 1) std::fill(row.begin(), row.end(), 0.f);
    row[depth - 1] = odd;
    to_digits(row.data(), matrix, 0, 1, to, nullptr);
    wrong += scales[0] != 0;
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
            for (const CodeFormat format : {CodeFormat::int8, CodeFormat::int4, CodeFormat::table, CodeFormat::bf16,
                                            CodeFormat::e4m3, CodeFormat::e5m2}) {
              if (has_offsets && format != CodeFormat::int8 && format != CodeFormat::int4) continue;
              wrong += wrong_elements_of_codes({rows, depth, columns}, format, group_size, has_offsets);
              ++cases;
            }
          }
        }
        ++cases;
      }
    }
  }
  for (int64_t count = 1; count < 70; ++count, ++cases) wrong += wrong_bytes_of_a_row(count) + wrong_digits(count);
  return report(cases, wrong);
}
