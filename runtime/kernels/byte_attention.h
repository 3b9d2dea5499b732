// Attention (attention.h) of 8-bit numbers: query, key and value are uint8, and both products sums of exact integers.
//
// A probability becomes a number from 0 to 255, where 255 is that of the largest score of the query. The result is divided
// by the sum of these numbers, so that rounding them leaves the weights of a query 1 in all.
#pragma once

#include <cstdint>

namespace ipex::runtime {

// Rows are dense, and `stride` elements apart.
struct ByteAttentionHead {
  const uint8_t *query, *key, *value;
  int64_t query_stride, key_stride, value_stride;
  int64_t queries, keys;
  int64_t width, value_width;  // of query and key, a multiple of 4; of value and result
  // That of the keys changes all scores of a query by the same, and so nothing.
  int32_t query_zero, value_zero;
  float scale;  // of the product of two numbers
  float value_scale;
  // As in AttentionHead.
  const float* mask;
  int64_t mask_stride;
  const float* second_mask;
  int64_t second_mask_stride;
  bool is_causal;
  int64_t past;
  // One of them is null. A number is result * inverse_scale + zero_point, rounded.
  float* floats;
  uint8_t* numbers;
  int64_t result_stride;
  float inverse_scale, zero_point;
};

// Sums of so many products of probabilities and values fit 32 bits.
constexpr int64_t most_keys_of_bytes = 1 << 15;

struct ByteAttentionKernels {
  int64_t (*queries_at_once)(int64_t keys);
  // Floats that `prepare` and `attend` need beside.
  int64_t (*scratch_size)(const ByteAttentionHead&);
  // Once for each head, before its queries.
  bool (*prepare)(const ByteAttentionHead&, float* scratch);
  // The queries in [first, last). False when one sees no key, or a mask is NaN or infinity: the result is then incomplete.
  bool (*attend)(const ByteAttentionHead&, int64_t first, int64_t last, float* scratch);
};

}  // namespace ipex::runtime
