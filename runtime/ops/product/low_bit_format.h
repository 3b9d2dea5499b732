// The formats in which a linear's weight may be kept: integers, places in a table, and floats of 8 and 16 bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "kernels/codes_product.h"

namespace ipex::runtime {

struct LowBitFormat {
  // As users write it. A file format: permanent.
  const char* name;
  // Of the codes as they are saved. Those of 4 bits lie in halves of bytes.
  at::ScalarType dtype;
  CodeFormat codes;
  int64_t bits;
  // Of floats and values: the largest finite number. 0 for integers.
  double largest;
  // Those that codes stand for, sixteen, in order. Null where a code is a number itself.
  const float* values = nullptr;

  bool is_integer() const { return largest == 0; }
  // The values in a tensor, as they are saved. Undefined where there are none.
  at::Tensor table() const;
  // The elements of a row of saved codes.
  int64_t row_length(int64_t inputs) const { return bits == 4 ? (inputs + 1) / 2 : inputs; }
};

// Null where there is none.
const LowBitFormat* low_bit_format(const std::string& name);
const LowBitFormat* low_bit_format(at::ScalarType dtype, bool has_values = false);

// Their names, for messages.
std::string low_bit_format_names();

}  // namespace ipex::runtime
