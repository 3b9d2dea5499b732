// Products (rows_product.h) of many rows where both factors are pairs of bfloat16 numbers (numbers.h), for CPUs with an
// instruction that multiplies pairs and adds both products to a float32 sum. It does twice as much at a time as one for
// floats. It takes numbers below 2^-126 for zero, and so does rounding.
#pragma once

#include "kernels/rows_product.h"

namespace ipex::runtime {

using PairsProduct = RowsProductOf<uint32_t>;

struct PairsProductKernels {
  // What is read of rows and of columns goes beyond their ends up to multiples of these: of rows anything, of the words of a
  // row and of a column zeros.
  int64_t whole_rows, whole_words;
  // The widest panels that it takes.
  int64_t most_columns;
  // A row of `count` floats as pairs, filled up to whole words: to nearest even, NaN and infinity stay.
  void (*round)(const float* from, int64_t count, uint32_t* to);
  // As ManyRowsKernels::multiply.
  void (*multiply)(const PairsProduct&, int64_t first_row, int64_t last_row, int64_t first_panel, int64_t last_panel);
};

}  // namespace ipex::runtime
