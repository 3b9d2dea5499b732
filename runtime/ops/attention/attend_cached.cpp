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
#include <torch/library.h>

#include "ops/attention/scaled_dot_product_attention.h"
#include "packed/call_conditions.h"
#include "packed/coded_rows.h"
#include "packed/door.h"
#include "packed/float_rows.h"
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
  // A diagonal for each word: it sees what is on its left.
  Tensor mask = at::ones({count, all}, bools).tril(before);
  if (has_window) mask = mask.logical_and(at::ones({count, all}, bools).triu(before - window + 1));
  mask = mask.unsqueeze(0);
  if (attended.numel() != 0) {
    mask = mask.logical_and(attended.to(at::kBool).unsqueeze(1));
    // A word that pads sees nothing but itself: what it computes is not read, and should be a number.
    mask = mask.logical_or(at::ones({count, all}, bools).tril(before).triu(before).unsqueeze(0));
  }
  return mask.unsqueeze(1);
}

// The memory of a text, as views.
struct Kept {
  Tensor keys, values;
  std::optional<RowScales> scales;

  Kept(const Tensor& memory, int64_t of_key, int64_t of_value, bool has_codes) {
    const int64_t room = memory.size(2);
    const Tensor heads = memory.flatten(2);
    int64_t begin = 0;
    const auto take = [&](int64_t numbers) {
      const Tensor taken = heads.narrow(2, begin, room * numbers);
      begin += room * numbers;
      return taken;
    };
    if (has_codes) {
      const Tensor of_keys = take(sizeof(float)).view(at::kFloat);
      scales = {of_keys, take(sizeof(float)).view(at::kFloat)};
    }
    keys = take(of_key).unflatten(2, {room, of_key});
    values = take(of_value).unflatten(2, {room, of_value});
  }

  // Words in [first, first + count).
  Kept(const Kept& all, int64_t first, int64_t count)
      : keys(all.keys.narrow(2, first, count)), values(all.values.narrow(2, first, count)) {
    if (all.scales) scales = {all.scales->key.narrow(2, first, count), all.scales->value.narrow(2, first, count)};
  }

  void write(const Tensor& key, const Tensor& value) const {
    if (scales) {
      write_coded_rows(key, keys, scales->key);
      write_coded_rows(value, values, scales->value);
    } else {
      keys.copy_(key);
      values.copy_(value);
    }
  }
};

// Scales are floats, and codes are written by kernels of ours.
void check_codes(const Tensor& kept, const Tensor& key, const Tensor& value) {
  TORCH_CHECK(is_plain_cpu(kept) && has_float_rows(key) && has_float_rows(value),
              "ipex::attend_cached: expected keys and values of float32 or 16 bits beside codes, got ", key.toString(),
              " and ", value.toString(), ".");
  constexpr int64_t size = sizeof(float);
  TORCH_CHECK(kept.storage_offset() % size == 0 && kept.size(2) % size == 0,
              "ipex::attend_cached: expected room for a multiple of 4 words of codes, at a multiple of 4 bytes, got ",
              kept.size(2), " at ", kept.storage_offset(), ".");
}

Tensor attend_cached(const Tensor& kept, const Tensor& query, const Tensor& key, const Tensor& value,
                     const Tensor& past, const Tensor& mask, std::optional<double> scale, int64_t window) {
  const int64_t before = number_in("ipex::attend_cached", past);
  const bool has_codes = coded_rows_of(kept.scalar_type()) != nullptr;
  const int64_t of_scales = has_codes ? 2 * sizeof(float) : 0;
  TORCH_CHECK(kept.dim() == 4 && query.dim() == 4 && key.dim() == 4 && value.dim() == 4 &&
                  key.sizes().slice(0, 3) == value.sizes().slice(0, 3) &&
                  kept.sizes().slice(0, 2) == key.sizes().slice(0, 2) &&
                  kept.size(3) == key.size(3) + value.size(3) + of_scales && kept.is_contiguous() &&
                  before <= kept.size(2) - key.size(2),
              "ipex::attend_cached: expected room for keys of ", key.sizes(), " and values of ", value.sizes(),
              " behind ", before, " words, got ", kept.sizes(), " with strides ", kept.strides(), ".");
  if (has_codes) check_codes(kept, key, value);
  const int64_t count = key.size(2), all = before + count;
  const Kept memory(kept, key.size(3), value.size(3), has_codes);
  Kept(memory, before, count).write(key, value);
  const bool has_mask = mask.numel() != 0;
  const int64_t first = !has_mask && count == 1 && window > 0 ? std::max<int64_t>(all - window, 0) : 0;
  const Kept seen(memory, first, all - first);
  const auto attend = [&](const Tensor& queries, bool is_causal, bool is_shared) {
    return attention_in_mode(queries, seen.keys, seen.values, has_mask ? std::optional(mask) : std::nullopt,
                             /*dropout_p=*/0, is_causal, scale, is_shared,
                             /*math_mode=*/std::nullopt, /*joined=*/nullptr, seen.scales ? &*seen.scales : nullptr);
  };
  // The heads of one word that share keys are as many words of one head: keys are read once for all of them.
  const int64_t batch = kept.size(0), heads = kept.size(1), shared = heads ? query.size(1) / heads : 0;
  if (count == 1 && query.size(2) == 1 && shared > 1 && query.size(1) == heads * shared &&
      batch * heads >= thread_count()) {
    const Tensor result = attend(query.reshape({batch, heads, shared, query.size(3)}), /*is_causal=*/false, false);
    return result.reshape({batch, heads * shared, 1, value.size(3)});
  }
  return attend(query, /*is_causal=*/!has_mask && count > 1, query.size(1) != key.size(1));
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
