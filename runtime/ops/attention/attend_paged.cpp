// Attention of tokens of several texts to a cache in blocks: their keys and values are written into it, and each token attends to
// what its text has there, up to itself.
//
//   ipex::attend_paged(kept, query, key, value, slots, blocks, begins, lengths, scale, window) -> result
//
// `kept` is as attend_cached.cpp says, with the blocks in place of a batch: [blocks, heads, tokens of a block, numbers of a key
// and of a value]. `query`, `key`, `value` and the result are [tokens, heads, numbers]. Token i is written to row
// slots[i] % size of block slots[i] / size, or nowhere where slots[i] is below 0; without keys and values nothing is written.
// Text t has the tokens from begins[t] to begins[t + 1], the last of lengths[t] tokens, of which blocks[t, i] holds those from
// i * size on. A token sees itself and those before it, the last `window` of them where that is not 0.
//
// Few tokens of a text read keys and values as they lie. Their keys are cut into parts, by the length of the text alone, for
// threads; what a token has seen of each is put together at the end. For more tokens, what the text has in its blocks is
// gathered, and attended to as any other keys are.
#include <ATen/ATen.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "memory/scratch.h"
#include "ops/attention/attention_heads.h"
#include "ops/attention/kept_part.h"
#include "ops/attention/scaled_dot_product_attention.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/float_rows.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

using at::Tensor;

constexpr const char* paged_name = "ipex::attend_paged";

// Tokens of a text in this call, and where it lies.
struct PagedText {
  int64_t begin, tokens, length;
  const int32_t* blocks;

  int64_t past() const { return length - tokens; }
  // The first key that a token sees.
  int64_t first_key(int64_t token, int64_t window) const {
    return window > 0 ? std::max<int64_t>(past() + token + 1 - window, 0) : 0;
  }
};

bool is_list_of(const Tensor& tensor, at::ScalarType dtype, int64_t dimensions) {
  return tensor.scalar_type() == dtype && tensor.dim() == dimensions && is_plain_cpu(tensor) &&
         (tensor.size(-1) <= 1 || tensor.stride(-1) == 1);
}

std::vector<PagedText> texts_of(const Tensor& blocks, const Tensor& begins, const Tensor& lengths, int64_t tokens,
                                const Tensor& kept, int64_t window) {
  TORCH_CHECK(is_list_of(blocks, at::kInt, 2) && is_list_of(begins, at::kInt, 1) && is_list_of(lengths, at::kInt, 1) &&
                  lengths.size(0) == blocks.size(0) && begins.size(0) == blocks.size(0) + 1,
              paged_name,
              ": expected int32 blocks of [texts, blocks], begins of [texts + 1] and lengths of [texts], got ",
              blocks.toString(), " of ", blocks.sizes(), ", ", begins.toString(), " of ", begins.sizes(), " and ",
              lengths.toString(), " of ", lengths.sizes(), ".");
  const auto *begin = begins.const_data_ptr<int32_t>(), *length = lengths.const_data_ptr<int32_t>();
  std::vector<PagedText> texts;
  for (int64_t t = 0; t < blocks.size(0); ++t) {
    const PagedText text{begin[t], int64_t{begin[t + 1]} - begin[t], length[t],
                         blocks.const_data_ptr<int32_t>() + t * blocks.stride(0)};
    TORCH_CHECK(text.begin >= 0 && text.tokens >= 0 && text.begin + text.tokens <= tokens &&
                    text.length >= text.tokens && at::divup(text.length, kept.size(2)) <= blocks.size(1),
                paged_name, ": expected text ", t, " within ", tokens, " tokens, and within ", blocks.size(1),
                " blocks of ", kept.size(2), ", got tokens ", begin[t], " to ", begin[t + 1], ", the last of ",
                length[t], ".");
    if (text.tokens == 0) continue;
    for (int64_t i = text.first_key(0, window) / kept.size(2); i * kept.size(2) < text.length; ++i) {
      TORCH_CHECK(text.blocks[i] >= 0 && text.blocks[i] < kept.size(0), paged_name, ": expected a block below ",
                  kept.size(0), ", got ", text.blocks[i], " as block ", i, " of text ", t, ".");
    }
    texts.push_back(text);
  }
  return texts;
}

// [tokens, heads, numbers] as rows of heads, from a token on.
HeadRows rows_of_tokens(const HeadRows& all, int64_t first, int64_t count) {
  return {all.row(0, 0, first), all.dtype, {1, all.size(1), count, all.size(3)}, all.strides};
}
HeadRows with_tokens_as_rows(const Tensor& tokens, void* data) {
  return {static_cast<char*>(data),
          tokens.scalar_type(),
          {1, tokens.size(1), tokens.size(0), tokens.size(2)},
          {0, tokens.stride(1), tokens.stride(0), 1}};
}

class PagedAttention {
 public:
  PagedAttention(const Tensor& kept, const Tensor& query, int64_t of_value, const Tensor& result, double scale,
                 int64_t window)
      : block_tokens_(kept.size(2)),
        window_(window),
        scale_(scale),
        keys_(KeptPart(kept, kept.scalar_type(), 0, query.size(2)).rows(0, kept.size(2))),
        values_(KeptPart(kept, kept.scalar_type(), block_tokens_ * query.size(2) * kept.itemsize(), of_value)
                    .rows(0, kept.size(2))),
        query_tensor_(query),
        result_tensor_(result),
        query_(with_tokens_as_rows(query, const_cast<void*>(query.const_data_ptr()))),
        result_(with_tokens_as_rows(result, result.mutable_data_ptr())),
        shared_(query.size(1) / kept.size(1)) {}

  void write(const Tensor& key, const Tensor& value, const int64_t* slots) const {
    const auto write_rows = [&](const Tensor& given, const HeadRows& to) {
      const Tensor dense = with_dense_rows(given);
      const HeadRows from = with_tokens_as_rows(dense, const_cast<void*>(dense.const_data_ptr()));
      const int64_t bytes = to.size(3) * to.item_size(), heads = to.size(1), count = given.size(0);
      constexpr int64_t bytes_worth_waking = 1 << 18;
      parallel_for(count, grain_of(count, count * heads * bytes, bytes_worth_waking), [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          for (int64_t head = 0; slots[i] >= 0 && head < heads; ++head) {
            std::memcpy(to.row(slots[i] / block_tokens_, head, slots[i] % block_tokens_), from.row(0, head, i), bytes);
          }
        }
      });
    };
    write_rows(key, keys_);
    write_rows(value, values_);
  }

  void attend(const std::vector<PagedText>& texts) const {
    std::vector<const PagedText*> few;
    for (const PagedText& text : texts) {
      if (text.tokens <= most_few_queries) {
        few.push_back(&text);
      } else if (!attend_many(text)) {
        attend_in_aten(text);
      }
    }
    if (attend_few(few)) return;
    for (const PagedText* text : few) attend_in_aten(*text);
  }

 private:
  // Some keys of a token, those in [first, last).
  struct Part {
    const PagedText* text;
    int64_t token, first, last;
  };
  // The parts in [first, last) are all of a token.
  struct Token {
    int64_t place, first, last;
  };

  // What a part has seen, of each head: weighed values, the largest scores, and sums of weights.
  struct SeenRows {
    float* values;
    AttentionSeen seen;
  };

  int64_t row_floats() const {
    constexpr int64_t floats_of_a_line = 16;
    return at::divup(values_.size(3), floats_of_a_line) * floats_of_a_line;
  }
  SeenRows seen_rows(float* memory, int64_t part, int64_t head) const {
    float* const own = memory + (part * keys_.size(1) + head) * shared_ * (row_floats() + 2);
    float* const largest = own + shared_ * row_floats();
    return {own, {largest, largest + shared_}};
  }

  // By the kernel that reads keys as they lie.
  bool attend_few(const std::vector<const PagedText*>& texts) const {
    std::vector<Part> parts;
    std::vector<Token> tokens;
    int64_t keys = 0;
    for (const PagedText* text : texts) {
      for (int64_t token = 0; token < text->tokens; ++token) {
        constexpr int64_t least_keys = 256, most_parts = 16;
        const int64_t first = text->first_key(token, window_), count = text->past() + token + 1 - first;
        const int64_t cuts = std::min(at::divup(count, least_keys), most_parts), before = parts.size();
        for (int64_t i = 0; i < cuts; ++i) {
          parts.push_back({text, token, first + count * i / cuts, first + count * (i + 1) / cuts});
        }
        tokens.push_back({text->begin + token, before, before + cuts});
        keys += count;
      }
    }
    if (tokens.empty()) return true;
    const int64_t heads = keys_.size(1), pieces = static_cast<int64_t>(parts.size()) * heads;
    const Tensor seen = at::empty({pieces * shared_ * (row_floats() + 2)}, at::kFloat);
    auto* const memory = seen.mutable_data_ptr<float>();
    constexpr int64_t products_worth_waking = 1 << 16;
    const int64_t products = keys * query_.size(1) * (keys_.size(3) + values_.size(3));
    parallel_for(pieces, grain_of(pieces, products, products_worth_waking), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) see(parts[i / heads], i % heads, seen_rows(memory, i / heads, i % heads));
    });
    const int64_t rows = static_cast<int64_t>(tokens.size()) * heads;
    std::atomic<bool> finite = true;
    parallel_for(rows, grain_of(rows, products, products_worth_waking), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        if (!put_together(tokens[i / heads], i % heads, memory)) finite = false;
      }
    });
    return finite;
  }

  void see(const Part& part, int64_t head, const SeenRows& rows) const {
    const AttentionKernels& kernel = kernels().attention;
    AttentionHead shape{};
    shape.queries = 1;  // of which the kernel's memory does not depend on how many there are
    shape.width = keys_.size(3);
    shape.value_width = values_.size(3);
    shape.key_stride = shape.width;
    shape.value_stride = shape.value_width;
    shape.scale = static_cast<float>(scale_);
    shape.result = rows.values;
    shape.result_stride = row_floats();
    const HalvesKernels* halves = halves_of(query_.dtype);
    const int64_t of_queries = halves ? shared_ * shape.width : 0;
    const Tensor memory = scratch(sizeof(float) * (of_queries + kernel.scratch_size(shape)));
    auto* const floats = static_cast<float*>(memory.data_ptr());
    const int64_t place = part.text->begin + part.token;
    for (int64_t i = 0; halves && i < shared_; ++i) {
      halves->widen(query_.row(0, head * shared_ + i, place), shape.width, floats + i * shape.width);
    }
    shape.query = halves ? floats : reinterpret_cast<const float*>(query_.row(0, head * shared_, place));
    shape.query_stride = halves ? shape.width : query_.stride(1);
    std::fill_n(rows.seen.largest, shared_, -INFINITY);
    std::fill_n(rows.seen.weights, shared_, -1.f);
    const auto see_keys = keys_.dtype == at::kFloat      ? kernel.see_float32
                          : keys_.dtype == at::kBFloat16 ? kernel.see_bfloat16
                                                         : kernel.see_float16;
    for_blocks(*part.text, part.first, part.last, [&](int64_t block, int64_t row, int64_t /*key*/, int64_t count) {
      shape.keys = count;
      see_keys(shape, keys_.row(block, head, row), values_.row(block, head, row), 0, shared_, 0, count, rows.seen,
               floats + of_queries);
    });
  }

  // False where numbers are not ordinary.
  bool put_together(const Token& token, int64_t head, float* memory) const {
    const HalvesKernels* halves = halves_of(result_.dtype);
    const int64_t width = values_.size(3), stride = row_floats();
    const Tensor room = scratch(sizeof(float) * stride);
    auto* const sums = static_cast<float*>(room.data_ptr());
    for (int64_t i = 0; i < shared_; ++i) {
      float largest = -INFINITY, weights = 0;
      for (int64_t p = token.first; p < token.last; ++p) {
        largest = std::max(largest, seen_rows(memory, p, head).seen.largest[i]);
      }
      std::fill_n(sums, width, 0.f);
      for (int64_t p = token.first; p < token.last; ++p) {
        const SeenRows rows = seen_rows(memory, p, head);
        const float factor = std::exp(rows.seen.largest[i] - largest), *values = rows.values + i * stride;
        weights += rows.seen.weights[i] * factor;
        for (int64_t c = 0; c < width; ++c) sums[c] += values[c] * factor;
      }
      char* const to = result_.row(0, head * shared_ + i, token.place);
      float* const floats = halves ? sums : reinterpret_cast<float*>(to);
      if (!(weights >= 1) || !kernels().attention.divide(sums, width, weights, floats)) return false;
      if (halves) halves->narrow(floats, width, to);
    }
    return true;
  }

  // Calls visit(block, row in it, key, how many) for what lies together of the keys in [first, last) of a text.
  template <typename Visit>
  void for_blocks(const PagedText& text, int64_t first, int64_t last, const Visit& visit) const {
    for (int64_t count; first < last; first += count) {
      const int64_t row = first % block_tokens_;
      count = std::min(block_tokens_ - row, last - first);
      visit(text.blocks[first / block_tokens_], row, first, count);
    }
  }

  // Keys or values of some heads of a text, [1, heads, keys from `first` on, numbers].
  Tensor gathered(const HeadRows& part, const PagedText& text, int64_t first, int64_t head, int64_t heads) const {
    const int64_t keys = text.length - first, bytes = part.size(3) * part.item_size();
    const Tensor found = empty_result({1, heads, keys, part.size(3)}, part.dtype);
    auto* const to = static_cast<char*>(found.mutable_data_ptr());
    constexpr int64_t bytes_worth_waking = 1 << 18;
    parallel_for(heads, grain_of(heads, heads * keys * bytes, bytes_worth_waking), [&](int64_t from, int64_t end) {
      for (int64_t i = from; i < end; ++i) {
        for_blocks(text, first, text.length, [&](int64_t block, int64_t row, int64_t key, int64_t count) {
          std::memcpy(to + (i * keys + key - first) * bytes, part.row(block, head + i, row), count * bytes);
        });
      }
    });
    return found;
  }

  // True where a token sees a key. None where all see those up to themselves.
  std::optional<Tensor> mask_of(const PagedText& text, int64_t first) const {
    if (window_ == 0 || text.length <= window_) return std::nullopt;
    return whole_mask_of(text, first);
  }
  Tensor whole_mask_of(const PagedText& text, int64_t first) const {
    return causal_mask(text.tokens, text.length - first, text.past() - first, window_);
  }

  bool attend_many(const PagedText& text) const {
    const int64_t first = text.first_key(0, window_), heads = keys_.size(1);
    const std::optional<Tensor> mask = mask_of(text, first);
    // So many heads at a time that what is gathered stays small beside the cache.
    constexpr int64_t most_bytes = 1 << 25;
    const int64_t of_a_head = (text.length - first) * (keys_.size(3) + values_.size(3)) * keys_.item_size();
    const int64_t at_once = std::clamp<int64_t>(most_bytes / of_a_head, 1, heads);
    for (int64_t head = 0; head < heads; head += at_once) {
      const int64_t count = std::min(at_once, heads - head);
      const Tensor keys = gathered(keys_, text, first, head, count),
                   values = gathered(values_, text, first, head, count);
      const auto of_heads = [&](const HeadRows& all) {
        HeadRows some = rows_of_tokens(all, text.begin, text.tokens);
        some.first = some.row(0, head * shared_);
        some.sizes[1] = count * shared_;
        return some;
      };
      const HeadRows query = of_heads(query_);
      const AttentionHeads attention{
          .query = query,
          .key = HeadRows::to_read(keys),
          .value = HeadRows::to_read(values),
          .masks = mask ? added(*mask, query_tensor_.narrow(1, 0, count * shared_).transpose(0, 1).unsqueeze(0))
                        : std::vector<HeadMask>(),
          .scale = static_cast<float>(scale_),
          .is_causal = !mask,
          .past = text.past() - first,
          .rounds = rounds_in(paged_name, std::nullopt)};
      if (!runtime::attend(attention, of_heads(result_))) return false;
    }
    return true;
  }

  void attend_in_aten(const PagedText& text) const {
    const LeftToAten left("a number is not finite or very large", paged_name);
    const int64_t first = text.first_key(0, window_), heads = keys_.size(1);
    const auto tokens_of = [&](const Tensor& all) {
      return all.narrow(0, text.begin, text.tokens).transpose(0, 1).unsqueeze(0);
    };
    const Tensor mask = whole_mask_of(text, first);
    tokens_of(result_tensor_)
        .copy_(at::scaled_dot_product_attention(tokens_of(query_tensor_), gathered(keys_, text, first, 0, heads),
                                                gathered(values_, text, first, 0, heads), mask, /*dropout_p=*/0,
                                                /*is_causal=*/false, scale_, /*enable_gqa=*/shared_ > 1));
  }

  const int64_t block_tokens_, window_;
  const double scale_;
  const HeadRows keys_, values_;  // of all blocks
  const Tensor &query_tensor_, &result_tensor_;
  const HeadRows query_, result_;  // [1, heads, tokens, numbers]
  const int64_t shared_;           // so many heads have one of keys
};

Tensor attend_paged(const Tensor& kept, const Tensor& query, const std::optional<Tensor>& key,
                    const std::optional<Tensor>& value, const Tensor& slots, const Tensor& blocks, const Tensor& begins,
                    const Tensor& lengths, std::optional<double> scale, int64_t window) {
  TORCH_CHECK(has_float_rows(kept) && kept.dim() == 4 && kept.is_contiguous() && kept.numel() > 0, paged_name,
              ": expected a contiguous cache of float32 or 16 bits, [blocks, heads, tokens of a block, numbers], got ",
              kept.toString(), " of ", kept.sizes(), " with strides ", kept.strides(), ".");
  const auto fits = [&](const Tensor& rows, int64_t tokens) {
    return has_float_rows(rows) && rows.scalar_type() == kept.scalar_type() && rows.dim() == 3 &&
           rows.size(0) == tokens && !wants_gradient(rows);
  };
  const int64_t of_value = query.dim() == 3 ? kept.size(3) - query.size(2) : 0;
  TORCH_CHECK(query.dim() == 3 && fits(query, query.size(0)) && query.size(1) > 0 && query.size(2) > 0 &&
                  of_value > 0 && query.size(1) % kept.size(1) == 0 && !wants_gradient(kept),
              paged_name, ": expected a query of [tokens, heads, numbers] without gradients that fits a cache of ",
              kept.toString(), " of ", kept.sizes(), ", got ", query.toString(), " of ", query.sizes(), ".");
  TORCH_CHECK(key.has_value() == value.has_value(), paged_name, ": expected keys and values, or neither.");
  TORCH_CHECK(window >= 0 && std::abs(scale.value_or(1)) < 1e6, paged_name,
              ": expected a window and a small scale, got ", window, " and ", scale.value_or(1), ".");
  const int64_t tokens = query.size(0);
  const std::vector<PagedText> texts = texts_of(blocks, begins, lengths, tokens, kept, window);
  const Tensor dense = with_dense_rows(query);
  const Tensor result = empty_result({tokens, query.size(1), of_value}, query.scalar_type());
  const PagedAttention attention(kept, dense, of_value, result, scale_of_scores(scale, query), window);
  if (key) {
    TORCH_CHECK(fits(*key, tokens) && fits(*value, tokens) && key->size(1) == kept.size(1) &&
                    value->size(1) == kept.size(1) && key->size(2) == query.size(2) && value->size(2) == of_value,
                paged_name, ": expected keys and values of ", tokens, " tokens that fit a cache of ", kept.sizes(),
                ", got ", key->toString(), " of ", key->sizes(), " and ", value->toString(), " of ", value->sizes(),
                ".");
    TORCH_CHECK(is_list_of(slots, at::kLong, 1) && slots.size(0) == tokens, paged_name, ": expected int64 slots of ",
                tokens, " tokens, got ", slots.toString(), " of ", slots.sizes(), ".");
    const auto* slot = slots.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < tokens; ++i) {
      TORCH_CHECK(slot[i] < kept.size(0) * kept.size(2), paged_name, ": expected a slot below ",
                  kept.size(0) * kept.size(2), ", got ", slot[i], ".");
    }
    attention.write(*key, *value, slot);
  }
  // Tokens of no text see nothing.
  int64_t in_texts = 0;
  for (const PagedText& text : texts) in_texts += text.tokens;
  if (in_texts < tokens) result.zero_();
  attention.attend(texts);
  return result;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m,
         "attend_paged(Tensor(a!) kept, Tensor query, Tensor? key, Tensor? value, Tensor slots, Tensor blocks, "
         "Tensor begins, Tensor lengths, float? scale, int window) -> Tensor",
         attend_paged);
}

}  // namespace
}  // namespace ipex::runtime
