// Products (rows_product.h) of many rows where both factors are pairs of bfloat16 numbers (numbers.h), for CPUs with an
// instruction that multiplies pairs and adds both products to a float32 sum. It does twice as much at a time as one for
// floats. It takes numbers below 2^-126 for zero, and so does rounding.
#pragma once

#include "kernels/rows_product.h"

namespace ipex::runtime {

using PairsProduct = RowsProductOf<uint32_t>;

struct PairsProductKernels {
  // A row of `count` floats as pairs: to nearest even, NaN and infinity stay.
  void (*round)(const float* from, int64_t count, uint32_t* to);
  // As ManyRowsKernels::multiply.
  void (*multiply)(const PairsProduct&, int64_t first_row, int64_t last_row, int64_t first_panel, int64_t last_panel);
};

}  // namespace ipex::runtime
