// Products of some rows of floats and a packed matrix of codes, small integers or short floats, which become floats in
// registers. A group of numbers of a column, neighbours in depth, has a scale of its own, and perhaps an offset:
//
//   number = (code - offset[group][column]) * scale[group][column]
//
//   int8   codes of -128 to 127, one a byte:          bytes[panel][depth][panel_columns]
//          with VNNI, four of a column in a word:     words[panel][depth / 4][panel_columns]
//   e4m3   8-bit floats of 4 bits of exponent, finite:  the same
//   e5m2   8-bit floats of 5 bits of exponent, finite:  the same
//   int4   codes of -8 to 7, eight of a column in a word, the first in the lowest bits:
//                                                     words[panel][depth / 8][panel_columns]
//   table  codes of 0 to 15, likewise: which of sixteen values the number is
//   bf16   bfloat16, two of a column in a word, likewise: words[panel][depth / 2][panel_columns]
//
// Scales and offsets are floats, [panel][group][panel_columns]. The depth is a whole number of groups, and a group of
// words: rows and matrix are padded with zeros.
#pragma once

#include <cstdint>

#include "kernels/elementwise.h"

namespace ipex::runtime {

enum class CodeFormat { int8, int4, table, bf16, e4m3, e5m2 };

// A group is a whole number of these.
constexpr int64_t codes_of_a_word = 8;

constexpr int64_t numbers_of_a_table = 16;

// How many numbers of a column lie together, in how many bytes.
struct CodeWord {
  int64_t numbers, bytes;
};

constexpr CodeWord word_of(CodeFormat format) {
  return format == CodeFormat::int4 || format == CodeFormat::table ? CodeWord{8, 4}
         : format == CodeFormat::bf16                              ? CodeWord{2, 4}
                                                                   : CodeWord{1, 1};
}

struct CodesMatrix {
  CodeFormat format;
  const void* codes;
  const float* scales;
  const float* offsets;  // null where all are zero
  int64_t group_size, groups;
  const float* values = nullptr;  // of `table`

  int64_t depth() const { return groups * group_size; }
};

// Rows of numbers in a fixed point of 8, 16 or 24 bits, as digits of -128 to 127: instructions for bytes multiply them by
// codes, and the sums are exact. A number is scale * (65536 * digit 2 + 256 * digit 1 + digit 0). With three digits it is
// as near as a float. Some rows at a time are multiplied together, a block of them: as many as registers have sums for.
constexpr int most_digits = 3;
constexpr int64_t rows_of_a_digit_block(int digits) { return 6 / digits; }
struct DigitRows {
  int count;  // of a number
  // [block][depth / 4][row of the block][digit][4]; for int4, of eight neighbours those with even numbers come first.
  int8_t* digits;
  // What sums of products begin at, as kernels take codes from 0 up: [row][group][digit].
  int32_t* starts;
  float* scales;  // [row][group]; the first is 0 for rows that have no digits, which are multiplied as floats
};

struct CodesProduct {
  const float* rows;
  int64_t row_stride;  // elements from one row to the next
  int64_t row_count;
  const float* group_sums;  // of the rows, [row][group]; may be null where the matrix has no offsets
  DigitRows digits;         // of the same rows, or null: then the codes become floats
  CodesMatrix matrix;
  ElementwiseSteps steps;
  // Dense. May be where the operand of the first step is, if that adds one of the result's shape.
  float* result;
};

struct CodesProductKernels {
  int64_t panel_columns;
  int64_t int8_in_word;
  // Makes digits of row `number` for this matrix. It has none where its numbers are not finite, or too small: the first of
  // its scales is 0 then. Writes the sums of its groups too, unless they are null. Null without VNNI.
  void (*to_digits)(const float* row, const CodesMatrix&, int64_t number, int64_t row_count, const DigitRows& to,
                    float* group_sums);
  // What is computed for a row does not depend on the others. `room` is null, or where the codes of a panel can lie as bytes,
  // depth() * panel_columns: blocks of digits read these, and only the first has to make them.
  void (*multiply)(const CodesProduct&, int64_t first_panel, int64_t last_panel, char* room);
  // Groups of a panel as floats, [depth][panel_columns].
  void (*expand)(const CodesMatrix&, int64_t panel, int64_t first_group, int64_t last_group, float* to);
  // The codes in blocks of a panel's depth, as tiles (tile_product.h). Null where there is no AVX-512.
  void (*codes_as_tiles)(const CodesMatrix&, int64_t panel, int64_t first_block, int64_t last_block, void* to);
};

}  // namespace ipex::runtime
