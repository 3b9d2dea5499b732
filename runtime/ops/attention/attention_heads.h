// Attention on kernels of our own, all heads of a batch (kernels/attention.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// softmax(query @ key^T * scale + mask) @ value. Float32, four dimensions [batch, heads, length, width], the last one dense.
// A head of key and value may serve some heads of the query. The mask is float32 and broadcast to the scores.
struct AttentionHeads {
  at::Tensor query, key, value;
  at::Tensor mask;  // undefined for none
  float scale;
  bool is_causal = false;
  at::Tensor head_scales = {};  // beside `scale`, broadcast to [batch, heads, 1, 1]; undefined for none
};

// Writes [batch, heads, length, width of a value] into `result`, whose last dimension is dense. False where aten has to
// compute it: a number is not finite or very large, or a query sees no key.
[[nodiscard]] bool attend(const AttentionHeads& attention, const at::Tensor& result);

// Undoes expand, so that a mask is as small as what it was made from.
at::Tensor shrunk(at::Tensor mask);

}  // namespace ipex::runtime
