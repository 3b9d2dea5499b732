// Rows of codes in tensors (kernels/coded_rows.h): int8, float8_e4m3fn or float8_e5m2, and a scale for each row.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/coded_rows.h"

namespace ipex::runtime {

// Null for dtypes that are no codes.
const CodedRowKernels* coded_rows_of(at::ScalarType dtype);

// Of keys and values that are codes: [batch, heads, length], the last dimension dense.
struct RowScales {
  at::Tensor key, value;
};

// Rows of float32 or 16 bits, [batch, heads, length, width] of a plain CPU tensor, as codes and scales of these sizes.
void write_coded_rows(const at::Tensor& rows, const at::Tensor& codes, const at::Tensor& scales);

// What codes and scales stand for, in float32.
at::Tensor numbers_of(const at::Tensor& codes, const at::Tensor& scales);

}  // namespace ipex::runtime
