// Attention on kernels of our own, all heads of a batch (kernels/attention.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "math_mode.h"
#include "ops/attention/joined_heads.h"
#include "ops/quantized/affine.h"
#include "packed/coded_rows.h"
#include "packed/head_rows.h"

namespace ipex::runtime {

// What is added to the scores: float32, broadcast to [..split, queries, keys]. The heads of all batches, one after the
// other, are the elements of `split`: [batch, heads], or [images, windows, heads] where each window has its own mask.
struct HeadMask {
  at::Tensor values;
  std::vector<int64_t> split;
};

// The same where keys lie in a grid: to the score of the key at [x, y] a query adds rows[x] + columns[y]. Contiguous float32,
// [heads of all batches, queries, x] and [.., y]. The sums of some queries at a time are held, never all.
struct GridMask {
  at::Tensor rows, columns;
};

// The mask that is a + b, [.., x, 1] and [.., 1, y] or expanded from these, in the shape of the scores. None where it is no
// such mask of float32, or autograd looks: then `sum_of_sides` is what is added.
std::optional<GridMask> grid_mask(const at::Tensor& a, const at::Tensor& b, at::IntArrayRef shape,
                                  at::IntArrayRef scores);
at::Tensor sum_of_sides(const at::Tensor& a, const at::Tensor& b, at::IntArrayRef shape);

// How 8-bit numbers stand for query, key and value. Of a result that stays float32: none.
struct AttentionAffines {
  Affine query, key, value;
  std::optional<Affine> result;
};

// Those of an op: scales and zero points of query, key and value (affine.h), and of a result of numbers.
AttentionAffines attention_affines(const char* where, const std::vector<double>& scales,
                                   const std::optional<Affine>& result);

// Throws, naming `where`, for inputs that are no uint8 CPU tensors.
void check_bytes(const char* where, at::TensorList inputs);

// softmax(query @ key^T * scale + masks) @ value. Float32, bfloat16, float16, or uint8 with affines; four dimensions
// [batch, heads, length, width], the last one dense, or all of them `lie_turned`. A head of key and value may serve some
// heads of the query.
struct AttentionHeads {
  HeadRows query, key, value;
  std::vector<HeadMask> masks;  // at most `most_masks`, of which a grid is one
  std::optional<GridMask> grid = std::nullopt;
  float scale;
  bool is_causal = false;  // query i sees keys 0 to past + i
  int64_t past = 0;
  at::Tensor head_scales = {};  // beside `scale`, broadcast to [batch, heads, 1, 1]; undefined for none
  bool rounds = false;          // factors of products to bfloat16, where the CPU multiplies these
  std::optional<AttentionAffines> affines = std::nullopt;
  const JoinedHeads* joined = nullptr;                 // whose key and value these are: they are written first
  std::optional<RowScales> row_scales = std::nullopt;  // of key and value, where these are codes

  bool multiplies_pairs() const { return query.dtype == at::kBFloat16 || (query.dtype == at::kFloat && rounds); }
};

constexpr size_t most_masks = 2;

// Why these sizes can't be computed with in 8 bits. Null where they can.
const char* reason_against_bytes(const at::Tensor& query, const at::Tensor& key);

// Whether the length is dense and not the width, in heads that a kernel reads so (kernels/turned_attention.h).
bool lie_turned(const AttentionHeads& attention);

// Writes [batch, heads, length, width of a value] into `result`, which lies as the heads do. False where aten has to
// compute it: a number is not finite or very large, or a query sees no key.
[[nodiscard]] bool attend(const AttentionHeads& attention, const HeadRows& result);

// Whether products may round their factors to bfloat16 in this mode, or in that of the process.
inline bool rounds_in(const char* where, std::optional<int64_t> math_mode) {
  return math_mode_now(pinned_math_mode(where, math_mode)) == FP32MathMode::BF32;
}

// Undoes expand, so that a mask is as small as what it was made from.
at::Tensor shrunk(at::Tensor mask);

}  // namespace ipex::runtime
