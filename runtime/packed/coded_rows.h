// Rows of codes in tensors (kernels/coded_rows.h): int8, float8_e4m3fn or float8_e5m2, and a scale for each row.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/coded_rows.h"
#include "packed/head_rows.h"

namespace ipex::runtime {

// Null for dtypes that are no codes.
const CodedRowKernels* coded_rows_of(at::ScalarType dtype);

// Of keys and values that are codes: one for each row.
struct RowScales {
  HeadRows key, value;
};

// Rows of float32 or 16 bits as codes and their scales. All rows are dense.
void write_coded_rows(const HeadRows& rows, const HeadRows& codes, const HeadRows& scales);

}  // namespace ipex::runtime
