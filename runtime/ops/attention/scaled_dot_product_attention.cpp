// aten::scaled_dot_product_attention, on kernels of our own:
//
//   ipex::scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa) -> Tensor
//   ipex::scaled_dot_product_attention_of_bytes(.., enable_gqa, scales) -> Tensor     of uint8 numbers, see attention.cpp
//   ipex::attention_in_a_grid(query, key, value, shape, rows, columns, dropout_p, ..) -> Tensor
//
// The last has a mask that is rows + columns, in the shape of the tensor `shape`. Where keys lie in a grid (GridMask), it is
// never in memory.
//
// The result is laid out as aten's. All that our kernels don't take is aten's; a profiler shows the reason.
#include "ops/attention/scaled_dot_product_attention.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "memory/result_memory.h"
#include "ops/attention/attention_heads.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/float_rows.h"

namespace ipex::runtime {

using at::Tensor;

const char* reason_against_mask(const Tensor& mask, const Tensor& query, int64_t keys) {
  if (wants_gradient(mask)) return "its mask requires a gradient";
  const bool is_bool = mask.scalar_type() == at::kBool && is_plain_cpu(mask);
  const bool is_added =
      has_float_rows(mask) && (mask.scalar_type() == at::kFloat || mask.scalar_type() == query.scalar_type());
  if (!is_bool && !is_added) return "its mask is neither of bools nor of its dtype";
  std::vector<int64_t> scores = query.sizes().vec();
  scores.back() = keys;
  if (!at::is_expandable_to(mask.sizes(), scores)) return "its mask does not have the shape of the scores";
  return query.dim() > 4 && mask.dim() > 3 ? "its mask has more dimensions than heads of a batch" : nullptr;
}

at::Tensor causal_mask(int64_t words, int64_t keys, int64_t past, int64_t window) {
  const at::Tensor all = at::ones({words, keys}, at::kBool), seen = all.tril(past);
  return window > 0 ? seen.logical_and(all.triu(past - window + 1)) : seen;
}

double scale_of_scores(std::optional<double> scale, const Tensor& query) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

Tensor with_dense_rows(const Tensor& heads) { return heads.stride(-1) == 1 ? heads : heads.contiguous(); }

std::vector<HeadMask> added(const Tensor& mask, const Tensor& query) {
  const std::vector<int64_t> split{query.size(0), query.size(1)};
  if (mask.scalar_type() == at::kFloat) return {{mask, split}};
  const Tensor small = shrunk(mask);
  if (mask.scalar_type() != at::kBool) return {{small.to(at::kFloat), split}};
  const Tensor bools = small.contiguous(), numbers = at::empty(small.sizes(), at::kFloat);
  std::transform(bools.const_data_ptr<bool>(), bools.const_data_ptr<bool>() + bools.numel(),
                 numbers.mutable_data_ptr<float>(), [](bool counts) { return counts ? 0.f : -INFINITY; });
  return {{numbers, split}};
}

namespace {

using Mask = std::optional<Tensor>;

const char* reason_for_aten(const Tensor& query, const Tensor& key, const Tensor& value, const Mask& mask,
                            double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa,
                            bool is_bytes) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (dropout_p != 0) return "it has dropout";
  for (const Tensor* tensor : {&query, &key, &value}) {
    if (!is_bytes && !has_float_rows(*tensor)) return "an input is no CPU tensor of float32 or 16 bits";
    if (tensor->scalar_type() != query.scalar_type()) return "its inputs are of several dtypes";
    if (wants_gradient(*tensor)) return "an input requires a gradient";
    if (tensor->dim() < 3 || tensor->dim() != query.dim()) return "its inputs are no heads of one rank";
    if (tensor->numel() == 0) return "an input is empty";
  }
  // One head of keys for all queries is the same without enable_gqa: aten broadcasts it.
  const bool is_one_head = query.dim() == 4 && key.size(1) == 1 && value.size(1) == 1;
  const bool shares = is_one_head || (enable_gqa && query.dim() == 4);
  const int64_t before_heads = query.dim() - (shares ? 3 : 2);
  const bool heads_fit = shares ? query.size(1) % key.size(1) == 0 : !enable_gqa;
  if (!heads_fit || query.size(-1) != key.size(-1) || key.size(-2) != value.size(-2) ||
      query.sizes().slice(0, before_heads) != key.sizes().slice(0, before_heads) ||
      key.sizes().slice(0, query.dim() - 2) != value.sizes().slice(0, query.dim() - 2)) {
    return "the sizes do not fit";
  }
  if (mask && mask->defined()) {
    if (is_causal) return "it has two masks";
    if (const char* reason = reason_against_mask(*mask, query, key.size(-2))) return reason;
  }
  if (scale && !(std::abs(*scale) < 1e6)) return "its scale is very large";
  return is_bytes ? reason_against_bytes(query, key) : nullptr;
}

// Heads of a batch: what is before them is one dimension. A view where strides allow.
Tensor as_batch(const Tensor& heads) {
  return heads.dim() == 3 ? heads.unsqueeze(0) : heads.flatten(0, heads.dim() - 4);
}

// Laid out as aten's: its fused kernel takes what empty_like gives, and its products are contiguous.
Tensor result_for(const Tensor& query, const Tensor& value, bool is_fused, at::ScalarType dtype) {
  if (!is_fused) return empty_result({query.size(0), query.size(1), query.size(2), value.size(3)}, dtype);
  const Tensor like = at::empty_like(query, query.options().device(at::kMeta));
  return empty_result({query.numel()}, dtype).as_strided(like.sizes(), like.strides());
}

// By our kernels, or undefined and a reason.
Tensor compute_fused(const Tensor& query, const Tensor& key, const Tensor& value, const Mask& mask, double dropout_p,
                     bool is_causal, std::optional<double> scale, bool enable_gqa, bool rounds,
                     const std::optional<AttentionAffines>& affines, const JoinedHeads* joined, const char*& reason,
                     const std::optional<GridMask>& grid = std::nullopt) {
  reason = reason_for_aten(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa, affines.has_value());
  if (reason) return {};
  const double factor = scale_of_scores(scale, query);
  constexpr int64_t fused = 1;
  const bool is_batch = query.dim() == 4;         // aten's fused kernel takes nothing else
  const auto asked = [&](const Tensor& tensor) {  // aten is asked about floats
    return affines ? at::empty_strided(tensor.sizes(), tensor.strides(), at::kFloat) : tensor;
  };
  const bool is_fused = is_batch && at::_fused_sdp_choice(asked(query), asked(key), asked(value), mask, dropout_p,
                                                          is_causal, scale, enable_gqa) == fused;
  const Tensor heads = as_batch(query), own_query = with_dense_rows(heads), own_key = with_dense_rows(as_batch(key)),
               own_value = with_dense_rows(as_batch(value));
  const Tensor result = result_for(heads, as_batch(value), is_fused,
                                   !affines          ? query.scalar_type()
                                   : affines->result ? at::kByte
                                                     : at::kFloat);
  const bool is_added = mask && mask->defined() && !grid;
  const AttentionHeads attention{.query = HeadRows::to_read(own_query),
                                 .key = HeadRows::to_read(own_key),
                                 .value = HeadRows::to_read(own_value),
                                 .masks = is_added ? added(*mask, heads) : std::vector<HeadMask>(),
                                 .grid = grid,
                                 .scale = static_cast<float>(factor),
                                 .is_causal = is_causal,
                                 .rounds = rounds,
                                 .affines = affines,
                                 .joined = joined};
  if (!attend(attention, HeadRows::to_write(result))) {
    reason = "a number is not finite or very large, or a query sees no key";
    return {};
  }
  if (is_batch) return result;
  std::vector<int64_t> sizes = query.sizes().vec();
  sizes.back() = value.size(-1);
  return result.view(sizes);
}

// aten divides by the number of heads, and some releases end the process.
Tensor in_aten(const Tensor& query, const Tensor& key, const Tensor& value, const Mask& mask, double dropout_p,
               bool is_causal, std::optional<double> scale, bool enable_gqa) {
  const auto has_no_heads = [](const Tensor& tensor) { return tensor.dim() > 2 && tensor.size(-3) == 0; };
  TORCH_CHECK(!enable_gqa || (!has_no_heads(key) && !has_no_heads(value)),
              "ipex::scaled_dot_product_attention: expected heads of keys and values for enable_gqa, got none.");
  return at::scaled_dot_product_attention(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
}

}  // namespace

Tensor attention_in_mode(const Tensor& query, const Tensor& key, const Tensor& value, const Mask& mask,
                         double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa,
                         std::optional<int64_t> math_mode, const JoinedHeads* joined) {
  const char* reason = nullptr;
  const Tensor result = compute_fused(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa,
                                      rounds_in("ipex::scaled_dot_product_attention", math_mode),
                                      /*affines=*/std::nullopt, joined, reason);
  if (result.defined()) return result;
  if (joined) joined->write_all();
  const LeftToAten left(reason, "ipex::scaled_dot_product_attention");
  return in_aten(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
}

namespace {

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Mask& mask,
                                    double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa,
                                    std::optional<int64_t> math_mode) {
  return attention_in_mode(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa, math_mode, nullptr);
}

Tensor attention_of_bytes(const Tensor& query, const Tensor& key, const Tensor& value, const Mask& mask,
                          double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa,
                          const std::vector<double>& scales, const std::vector<double>& rounded) {
  constexpr const char* where = "ipex::scaled_dot_product_attention_of_bytes";
  const std::optional<Affine> rounding = affine_of(where, rounded);
  check_bytes(where, {query, key, value});
  const AttentionAffines affines = attention_affines(where, scales, rounding);
  const char* reason = nullptr;
  const Tensor result = compute_fused(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa,
                                      /*rounds=*/false, affines, /*joined=*/nullptr, reason);
  if (result.defined()) return result;
  const LeftToAten left(reason, where);
  const Tensor y = in_aten(dequantize(query, affines.query), dequantize(key, affines.key),
                           dequantize(value, affines.value), mask, dropout_p, is_causal, scale, enable_gqa);
  return rounding ? quantize(y.to(at::kFloat), *rounding) : y;
}

Tensor attention_in_a_grid(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& shape,
                           const Tensor& rows, const Tensor& columns, double dropout_p, bool is_causal,
                           std::optional<double> scale, bool enable_gqa, std::optional<int64_t> math_mode) {
  const char* reason = "its mask is no sum of rows and columns of a grid of keys";
  std::vector<int64_t> scores = query.sizes().vec();
  if (!scores.empty() && key.dim() > 1) scores.back() = key.size(-2);
  if (const auto grid = grid_mask(rows, columns, shape.sizes(), scores)) {
    const Tensor result = compute_fused(query, key, value, shape, dropout_p, is_causal, scale, enable_gqa,
                                        rounds_in("ipex::attention_in_a_grid", math_mode),
                                        /*affines=*/std::nullopt, /*joined=*/nullptr, reason, grid);
    if (result.defined()) return result;
  }
  RECORD_FUNCTION(c10::str("ipex::attention_in_a_grid of a mask in memory: ", reason), {});
  const Tensor mask = sum_of_sides(rows, columns, shape.sizes());
  return attention_in_mode(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa, math_mode, nullptr);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m,
         "attention_in_a_grid(Tensor query, Tensor key, Tensor value, Tensor shape, Tensor rows, Tensor columns, "
         "float dropout_p, bool is_causal, float? scale, bool enable_gqa, int? math_mode=None) -> Tensor",
         attention_in_a_grid);
  // A tensor of no memory, with the shape of a + b.
  define(m, "shape_of_sum(Tensor a, Tensor b) -> Tensor", [](const Tensor& a, const Tensor& b) {
    return at::zeros({}, a.options()).expand(at::infer_size(a.sizes(), b.sizes()));
  });
  const std::string given =
      "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p, bool is_causal, float? scale, "
      "bool enable_gqa, ";
  define(m, "scaled_dot_product_attention_of_bytes" + given + "float[] scales, float[] rounded=[]) -> Tensor",
         attention_of_bytes);
  define(m, "scaled_dot_product_attention" + given + "int? math_mode=None) -> Tensor", scaled_dot_product_attention);
}

}  // namespace
}  // namespace ipex::runtime
