// Rows with zeros behind them (onednn/row_width.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// `from` is dense, and so is `to`: as many rows, of `width` and of `padded_width` elements.
void pad_rows(const at::Tensor& from, int64_t width, const at::Tensor& to, int64_t padded_width);

}  // namespace ipex::runtime
