// Attention of new words to a text that is kept: their keys and values are written behind those of the words before
// them, into memory that has room, and the queries attend to all.
//
//   ipex::cache_mask(words, past, attended, window) -> mask
//   ipex::attend_cached(kept, query, key, value, past, mask, scale, window) -> result
//
// `kept` is contiguous, [batch, heads, room, numbers of a key and of a value]. Of a head, the keys lie before the values:
// what is read together lies together. Where its dtype is int8, float8_e4m3fn or float8_e5m2, they are codes
// (packed/coded_rows.h): rows have 8 bytes more, and of a head, the scales of all keys and then those of all values, floats,
// lie before the codes. New keys and values are rounded as they are written, and words see all as they are kept.
//
// `past` is a number in a tensor, as a trace keeps it: how many words there are so far. `attended`, of [batch, words in all],
// is false where a word does not count; without elements all do. A word sees itself and those before it, the last `window`
// of them where that is not 0. A mask without elements says that this is all there is to know, and no mask is read.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <cmath>
#include <cstring>

#include "memory/result_memory.h"
#include "ops/attention/kept_part.h"
#include "ops/attention/scaled_dot_product_attention.h"
#include "packed/call_conditions.h"
#include "packed/coded_rows.h"
#include "packed/door.h"
#include "packed/float_rows.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

using at::Tensor;

int64_t number_in(const char* op, const Tensor& past) {
  TORCH_CHECK(past.numel() == 1 && past.scalar_type() == at::kLong && past.is_cpu(), op,
              ": expected one number of int64 in past, got ", past.scalar_type(), " of ", past.sizes(), ".");
  const int64_t number = past.item<int64_t>();
  TORCH_CHECK(number >= 0, op, ": expected words in past, got ", number, ".");
  return number;
}

Tensor cache_mask(const Tensor& words, const Tensor& past, const Tensor& attended, int64_t window) {
  constexpr const char* op = "ipex::cache_mask";
  TORCH_CHECK(words.dim() >= 2 && window >= 0, op, ": expected words of [batch, words] and a window, got ",
              words.sizes(), " and ", window, ".");
  const int64_t count = words.size(1), before = number_in(op, past), all = before + count;
  const bool has_window = window > 0 && all > window;
  const auto bools = at::TensorOptions(at::kBool);
  if (attended.numel() == 0 && (count == 1 || (before == 0 && !has_window))) return at::empty({0}, bools);
  TORCH_CHECK(attended.numel() == 0 || (attended.dim() == 2 && attended.size(1) == all), op,
              ": expected attended of [batch, ", all, "], got ", attended.sizes(), ".");
  Tensor mask = causal_mask(count, all, before, has_window ? window : 0).unsqueeze(0);
  if (attended.numel() != 0) {
    mask = mask.logical_and(attended.to(at::kBool).unsqueeze(1));
    // A word that pads sees nothing but itself: what it computes is not read, and should be a number.
    mask = mask.logical_or(at::ones({count, all}, bools).tril(before).triu(before).unsqueeze(0));
  }
  return mask.unsqueeze(1);
}

void copy_rows(const HeadRows& from, const HeadRows& to) {
  constexpr int64_t bytes_worth_waking = 1 << 18;
  const int64_t bytes = from.size(3) * from.item_size(), count = from.size(0) * from.size(1) * from.size(2);
  parallel_for(count, grain_of(count, count * bytes, bytes_worth_waking), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) std::memcpy(to.row(i), from.row(i), bytes);
  });
}

// The memory of a text.
class Kept {
 public:
  Kept(const Tensor& memory, int64_t of_key, int64_t of_value, bool has_codes)
      : has_codes_(has_codes),
        key_scales_(memory, at::kFloat, 0, has_codes ? 1 : 0),
        value_scales_(memory, at::kFloat, key_scales_.end(), has_codes ? 1 : 0),
        keys_(memory, memory.scalar_type(), value_scales_.end(), of_key),
        values_(memory, memory.scalar_type(), keys_.end(), of_value) {}

  void write(const Tensor& key, const Tensor& value, int64_t first) const {
    write(key, keys_, key_scales_, first);
    write(value, values_, value_scales_, first);
  }

  HeadRows keys(int64_t first, int64_t count) const { return keys_.rows(first, count); }
  HeadRows values(int64_t first, int64_t count) const { return values_.rows(first, count); }
  std::optional<RowScales> scales(int64_t first, int64_t count) const {
    if (!has_codes_) return std::nullopt;
    return RowScales{key_scales_.rows(first, count), value_scales_.rows(first, count)};
  }

  // For aten: views, or floats in this dtype that codes stand for.
  std::pair<Tensor, Tensor> numbers(int64_t first, int64_t count, at::ScalarType dtype) const {
    const auto get = [&](const KeptPart& part, const KeptPart& scales) {
      const Tensor view = part.view(first, count);
      return has_codes_ ? view.to(at::kFloat).mul_(scales.view(first, count)).to(dtype) : view;
    };
    return {get(keys_, key_scales_), get(values_, value_scales_)};
  }

 private:
  void write(const Tensor& given, const KeptPart& part, const KeptPart& scales, int64_t first) const {
    const int64_t count = given.size(2);
    const HeadRows to = part.rows(first, count);
    if (!has_codes_ && (!has_float_rows(given) || wants_gradient(given) || given.scalar_type() != to.dtype)) {
      part.view(first, count).copy_(given);
      return;
    }
    const Tensor dense = with_dense_rows(given);
    const HeadRows from = HeadRows::to_read(dense);
    has_codes_ ? write_coded_rows(from, to, scales.rows(first, count)) : copy_rows(from, to);
  }

  const bool has_codes_;
  const KeptPart key_scales_, value_scales_, keys_, values_;  // as they lie
};

// Scales are floats, and codes are written by kernels of ours.
void check_codes(const Tensor& kept, const Tensor& key, const Tensor& value) {
  TORCH_CHECK(has_float_rows(key) && has_float_rows(value),
              "ipex::attend_cached: expected keys and values of float32 or 16 bits beside codes, got ", key.toString(),
              " and ", value.toString(), ".");
  constexpr int64_t size = sizeof(float);
  TORCH_CHECK(kept.storage_offset() % size == 0 && kept.size(2) % size == 0,
              "ipex::attend_cached: expected room for a multiple of 4 words of codes, at a multiple of 4 bytes, got ",
              kept.size(2), " at ", kept.storage_offset(), ".");
}

// By our kernels, of rows as they lie. Undefined where aten has to.
Tensor attend_rows(const Tensor& query, const Kept& memory, int64_t first, int64_t count, const Tensor& mask,
                   bool is_causal, std::optional<double> scale) {
  const HeadRows keys = memory.keys(first, count), values = memory.values(first, count);
  const bool has_mask = mask.numel() != 0, has_codes = coded_rows_of(keys.dtype) != nullptr;
  const bool fits = has_float_rows(query) && !wants_gradient(query) &&
                    (has_codes || keys.dtype == query.scalar_type()) && query.size(0) == keys.size(0) &&
                    query.size(3) == keys.size(3) && query.numel() > 0 && count > 0 && values.size(3) > 0 &&
                    query.size(1) % keys.size(1) == 0 && !at::autocast::is_autocast_enabled(at::kCPU) &&
                    std::abs(scale.value_or(1)) < 1e6 && !(has_mask && reason_against_mask(mask, query, count));
  if (!fits) return {};
  const Tensor dense = with_dense_rows(query);
  const int64_t batch = query.size(0), heads = query.size(1), words = query.size(2), width = values.size(3);
  const Tensor result = words == 1 ? empty_result({batch, heads, 1, width}, query.scalar_type())
                                   : empty_result({batch, words, heads, width}, query.scalar_type()).transpose(1, 2);
  AttentionHeads attention{.query = HeadRows::to_read(dense),
                           .key = keys,
                           .value = values,
                           .masks = has_mask ? added(mask, query) : std::vector<HeadMask>(),
                           .scale = static_cast<float>(scale_of_scores(scale, query)),
                           .is_causal = is_causal,
                           .rounds = rounds_in("ipex::attend_cached", std::nullopt),
                           .row_scales = memory.scales(first, count)};
  HeadRows to = HeadRows::to_write(result);
  // The heads of one word that share keys are as many words of one head: keys are read once for all of them.
  const int64_t shared = heads / keys.size(1);
  const bool share_mask = !has_mask || mask.dim() < 3 || mask.size(-3) == 1;
  if (words == 1 && shared > 1 && share_mask && batch * keys.size(1) >= thread_count()) {
    for (HeadMask& own : attention.masks) own.split = {batch, keys.size(1)};
    for (HeadRows* rows : {&attention.query, &to}) {
      const auto [of_batch, of_head, of_word, of_number] = rows->strides;
      rows->sizes = {batch, keys.size(1), shared, rows->size(3)};
      rows->strides = {of_batch, of_head * shared, of_head, of_number};
    }
  }
  return attend(attention, to) ? result : Tensor();
}

Tensor attend_cached(const Tensor& kept, const Tensor& query, const Tensor& key, const Tensor& value,
                     const Tensor& past, const Tensor& mask, std::optional<double> scale, int64_t window) {
  const int64_t before = number_in("ipex::attend_cached", past);
  const bool has_codes = coded_rows_of(kept.scalar_type()) != nullptr;
  const int64_t of_scales = has_codes ? 2 * sizeof(float) : 0;
  TORCH_CHECK(
      kept.dim() == 4 && query.dim() == 4 && key.dim() == 4 && value.dim() == 4 &&
          key.sizes().slice(0, 3) == value.sizes().slice(0, 3) && kept.sizes().slice(0, 2) == key.sizes().slice(0, 2) &&
          kept.size(3) == key.size(3) + value.size(3) + of_scales && kept.is_contiguous() && is_plain_cpu(kept) &&
          before <= kept.size(2) - key.size(2),
      "ipex::attend_cached: expected room for keys of ", key.sizes(), " and values of ", value.sizes(), " behind ",
      before, " words, got ", kept.toString(), " of ", kept.sizes(), " with strides ", kept.strides(), ".");
  if (has_codes) check_codes(kept, key, value);
  const int64_t count = key.size(2), all = before + count;
  const Kept memory(kept, key.size(3), value.size(3), has_codes);
  memory.write(key, value, before);
  const bool has_mask = mask.numel() != 0, is_causal = !has_mask && count > 1;
  const int64_t first = !has_mask && count == 1 && window > 0 ? std::max<int64_t>(all - window, 0) : 0;
  const Tensor result = attend_rows(query, memory, first, all - first, mask, is_causal, scale);
  if (result.defined()) return result;
  const auto [keys, values] = memory.numbers(first, all - first, query.scalar_type());
  return attention_in_mode(query, keys, values, has_mask ? std::optional(mask) : std::nullopt, /*dropout_p=*/0,
                           is_causal, scale, query.size(1) != key.size(1), /*math_mode=*/std::nullopt,
                           /*joined=*/nullptr);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "cache_mask(Tensor words, Tensor past, Tensor attended, int window) -> Tensor", cache_mask);
  define(m,
         "attend_cached(Tensor(a!) kept, Tensor query, Tensor key, Tensor value, Tensor past, Tensor mask, "
         "float? scale, int window) -> Tensor",
         attend_cached);
}

}  // namespace
}  // namespace ipex::runtime
