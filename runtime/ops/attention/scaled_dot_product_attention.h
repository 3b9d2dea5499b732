// aten::scaled_dot_product_attention on kernels of our own, for the ops that contain it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ops/attention/attention_heads.h"
#include "ops/attention/joined_heads.h"

namespace ipex::runtime {

// As aten's. With `joined`, its keys and values are `key` and `value`, which are written on the way.
at::Tensor attention_in_mode(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                             const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
                             std::optional<double> scale, bool enable_gqa, std::optional<int64_t> math_mode,
                             const JoinedHeads* joined);

// True where a word sees a key: those up to `past` behind its own place among the words, the last `window` of them where that is not
// 0. [words, keys].
at::Tensor causal_mask(int64_t words, int64_t keys, int64_t past, int64_t window);

// The scale that is given, or aten's.
double scale_of_scores(std::optional<double> scale, const at::Tensor& query);

// With the last dimension dense: itself, or a copy.
at::Tensor with_dense_rows(const at::Tensor& heads);

// Why our kernels don't take this mask of so many keys. Null where they do.
const char* reason_against_mask(const at::Tensor& mask, const at::Tensor& query, int64_t keys);

// What such a mask adds to the scores. One that was expanded is not copied whole.
std::vector<HeadMask> added(const at::Tensor& mask, const at::Tensor& query);

}  // namespace ipex::runtime
