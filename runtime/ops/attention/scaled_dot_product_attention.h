// aten::scaled_dot_product_attention on kernels of our own, for the ops that contain it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ops/attention/joined_heads.h"
#include "packed/coded_rows.h"

namespace ipex::runtime {

// As aten's. With `joined`, its keys and values are `key` and `value`, which are written on the way. With `row_scales`, these are
// codes.
at::Tensor attention_in_mode(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                             const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
                             std::optional<double> scale, bool enable_gqa, std::optional<int64_t> math_mode,
                             const JoinedHeads* joined, const RowScales* row_scales = nullptr);

}  // namespace ipex::runtime
