// A step of a language model: keys and values of a text, kept from step to step, are joined with those of the new words,
// and these attend to all of them.
//
//   ipex::cached_attention(query, past_key, key, past_value, value, dim, .., math_mode) -> (result, keys, values)
//
// As ipex::cat of keys and of values in dimension `dim`, and ipex::scaled_dot_product_attention. A thread joins a head just
// before it reads it: in place of three ops there is one for all threads to wait for, and the copy is read from the cache.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>

#include "memory/result_memory.h"
#include "ops/attention/scaled_dot_product_attention.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/float_rows.h"
#include "packed/memory_format.h"
#include "threads/parallel.h"

namespace ipex::runtime {

void JoinedHeads::write_all() const {
  const int64_t heads = keys.joined.size(1);
  parallel_for(keys.joined.size(0) * heads, /*grain_size=*/1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) write(i / heads, i % heads);
  });
}

namespace {

using at::Tensor;

bool fits(const Tensor& past, const Tensor& added, int64_t dim) {
  const auto is_heads = [](const Tensor& t) {
    return has_float_rows(t) && !wants_gradient(t) && t.dim() == 4 && t.numel() > 0 && t.stride(3) == 1;
  };
  return is_heads(past) && is_heads(added) && past.scalar_type() == added.scalar_type() && (dim == 2 || dim == -2) &&
         past.sizes().slice(0, 2) == added.sizes().slice(0, 2) && past.size(3) == added.size(3) &&
         common_format({past, added}) == at::MemoryFormat::Contiguous;
}

JoinedRows rows_of(const Tensor& past, const Tensor& added) {
  const at::DimVector sizes{past.size(0), past.size(1), past.size(2) + added.size(2), past.size(3)};
  return {past, added, empty_result(sizes, past.options())};
}

Tensor cat(const Tensor& past, const Tensor& added, int64_t dim) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("ipex::cat", "").typed<Tensor(at::TensorList, int64_t)>();
  return op.call({past, added}, dim);
}

std::tuple<Tensor, Tensor, Tensor> cached_attention(const Tensor& query, const Tensor& past_key, const Tensor& key,
                                                    const Tensor& past_value, const Tensor& value, int64_t dim,
                                                    const std::optional<Tensor>& mask, double dropout_p, bool is_causal,
                                                    std::optional<double> scale, bool enable_gqa,
                                                    std::optional<int64_t> math_mode) {
  const auto attend = [&](const Tensor& keys, const Tensor& values, const JoinedHeads* joined) {
    return std::make_tuple(
        attention_in_mode(query, keys, values, mask, dropout_p, is_causal, scale, enable_gqa, math_mode, joined), keys,
        values);
  };
  const bool joins = !at::autocast::is_autocast_enabled(at::kCPU) && fits(past_key, key, dim) &&
                     fits(past_value, value, dim) && past_key.sizes().slice(0, 3) == past_value.sizes().slice(0, 3) &&
                     key.size(2) == value.size(2);
  if (!joins) return attend(cat(past_key, key, dim), cat(past_value, value, dim), nullptr);
  const JoinedHeads joined{rows_of(past_key, key), rows_of(past_value, value)};
  return attend(joined.keys.joined, joined.values.joined, &joined);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m,
         "cached_attention(Tensor query, Tensor past_key, Tensor key, Tensor past_value, Tensor value, int dim, "
         "Tensor? attn_mask, float dropout_p, bool is_causal, float? scale, bool enable_gqa, int? math_mode) -> "
         "(Tensor, Tensor, Tensor)",
         cached_attention);
}

}  // namespace
}  // namespace ipex::runtime
