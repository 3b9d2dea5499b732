// softmax(query @ key^T * scale + mask) @ value, head by head, on plain pointers. The scores of some queries at a time are
// held, never all.
#pragma once

#include <cstdint>

namespace ipex::runtime {

// Rows are dense, and `stride` elements apart.
struct AttentionHead {
  const float *query, *key, *value;
  int64_t query_stride, key_stride, value_stride;
  int64_t queries, keys;
  int64_t width, value_width;  // of query and key; of value and result
  float scale;
  // Two masks, both added: a row for each query, or one for all where its stride is 0; null for none. Where there is one
  // only, it is the first.
  const float* mask;
  int64_t mask_stride;
  const float* second_mask;
  int64_t second_mask_stride;
  bool is_causal;  // query i sees keys 0 to past + i
  int64_t past;
  float* result;
  int64_t result_stride;
  const float *key_scales, *value_scales;  // of rows of codes (coded_rows.h), one for each; null where there are none
};

// So few queries are multiplied by the keys as they lie, so many keys at a time.
constexpr int64_t most_few_queries = 8, most_keys_of_few = 128;

// What queries have seen of the keys so far, beside their values, weighed, which are where a result will be: the largest score,
// and the sum of the weights, which are in proportion to it. -infinity and -1 where that is nothing.
struct AttentionSeen {
  float *largest, *weights;
};

struct AttentionKernels {
  // The largest magnitude, as the bits of a float: NaN and infinity are larger than all numbers.
  uint32_t (*largest_magnitude)(const float* data, int64_t count);
  // How many queries are best computed at once, with so many keys.
  int64_t (*queries_at_once)(int64_t keys);
  // Floats that `prepare` and `attend` need beside.
  int64_t (*scratch_size)(const AttentionHead&);
  // Once for each head, before its queries. False when a number is not finite, or so large that the order of additions
  // would matter.
  bool (*prepare)(const AttentionHead&, float* scratch);
  // The queries in [first, last). False when one sees no key, or as above: the result is then incomplete.
  bool (*attend)(const AttentionHead&, int64_t first, int64_t last, float* scratch);
  // The same for few queries, without `prepare`, where keys and values are of another format and the head's own are null.
  using AttendStored = bool (*)(const AttentionHead&, const void* key, const void* value, int64_t first, int64_t last,
                                float* scratch);
  AttendStored attend_bfloat16, attend_float16, attend_int8, attend_e4m3, attend_e5m2;
  // What `attend` does of few queries, but for the end, where keys lie in several places: adds those in [first_key, last_key),
  // which lie together from `key` and `value` on, to what the queries in [first, last), of any number, have seen.
  using See = void (*)(const AttentionHead&, const void* key, const void* value, int64_t first, int64_t last,
                       int64_t first_key, int64_t last_key, const AttentionSeen& seen, float* scratch);
  See see_float32, see_bfloat16, see_float16;
  // The end: a row of the result from weighed values and the sum of the weights. False where they are no ordinary numbers.
  bool (*divide)(const float* values, int64_t count, float sum, float* result);
  // The mask of a query whose keys lie in a grid: `sums`[x, y] = `rows`[x] + `columns`[y]. Writes up to a register more.
  void (*add_sides)(const float* rows, int64_t row_count, const float* columns, int64_t column_count, float* sums);
};

}  // namespace ipex::runtime
