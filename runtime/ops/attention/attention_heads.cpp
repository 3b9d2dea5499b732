#include "ops/attention/attention_heads.h"

#include <ATen/ATen.h>

#include "kernels/kernels.h"
#include "ops/attention/heads_of_call.h"
#include "packed/call_conditions.h"
#include "packed/damaged.h"
#include "packed/memory_format.h"

namespace ipex::runtime {
namespace {

// One side as [heads of all batches, queries, numbers], if it does not differ along `other`, which it may be expanded to.
std::optional<at::Tensor> side_of(at::Tensor side, int64_t other, at::IntArrayRef scores) {
  if (side.size(other) > 1 && side.stride(other) == 0) side = side.narrow(other, 0, 1);
  const int64_t queries = scores.end()[-2], rows = c10::multiply_integers(scores.slice(0, scores.size() - 1));
  if (side.size(other) != 1 || side.numel() % rows != 0) return std::nullopt;
  return contiguous_result(side.reshape({rows / queries, queries, side.numel() / rows}));
}

std::optional<GridMask> grid_of(const at::Tensor& rows, const at::Tensor& columns, at::IntArrayRef scores) {
  const bool fit = rows.dim() == columns.dim() && rows.dim() > 2 &&
                   rows.sizes().slice(0, rows.dim() - 2) == columns.sizes().slice(0, rows.dim() - 2);
  const auto of_rows = fit ? side_of(rows, -1, scores) : std::nullopt;
  const auto of_columns = of_rows ? side_of(columns, -2, scores) : std::nullopt;
  if (!of_columns || of_rows->size(2) * of_columns->size(2) != scores.back()) return std::nullopt;
  return GridMask{*of_rows, *of_columns};
}

}  // namespace

void check_bytes(const char* where, at::TensorList inputs) {
  for (const at::Tensor& input : inputs) {
    TORCH_CHECK(input.scalar_type() == at::kByte && is_plain_cpu(input), where, ": expected uint8 CPU inputs, got ",
                input.toString(), ".");
  }
}

AttentionAffines attention_affines(const char* where, const std::vector<double>& scales,
                                   const std::optional<Affine>& result) {
  const OptionalAffines found = affines_of(where, scales);
  TORCH_CHECK(found.size() == 3 && found[0] && found[1] && found[2], where,
              ": expected scales of query, key and value, got ", scales, damaged);
  return {*found[0], *found[1], *found[2], result ? std::optional(checked(where, *result)) : result};
}

const char* reason_against_bytes(const at::Tensor& query, const at::Tensor& key) {
  if (query.size(-1) % bytes_of_a_word != 0) return "the width of its heads is no multiple of 4";
  if (query.size(-1) > most_depth_of_bytes || key.size(-2) > most_keys_of_bytes) {
    return "its sums are too long for 32 bits";
  }
  return nullptr;
}

std::optional<GridMask> grid_mask(const at::Tensor& a, const at::Tensor& b, at::IntArrayRef shape,
                                  at::IntArrayRef scores) {
  for (const at::Tensor* side : {&a, &b}) {
    if (side->scalar_type() != at::kFloat || !is_plain_cpu(*side) || wants_gradient(*side)) return std::nullopt;
  }
  if (shape != scores || scores.size() < 3 || c10::multiply_integers(scores) == 0) return std::nullopt;
  auto grid = grid_of(a, b, scores);
  return grid ? grid : grid_of(b, a, scores);
}

at::Tensor sum_of_sides(const at::Tensor& a, const at::Tensor& b, at::IntArrayRef shape) {
  return at::add(a, b).reshape(shape);
}

at::Tensor shrunk(at::Tensor mask) {
  for (int64_t i = 0; i < mask.dim(); ++i) {
    if (mask.stride(i) == 0 && mask.size(i) > 1) mask = mask.narrow(i, 0, 1);
  }
  return mask;
}

bool attend(const AttentionHeads& attention, const HeadRows& result) {
  static constexpr AttentionAlgorithm by_aten{"aten", [](const HeadsOfCall&) -> const char* { return nullptr; },
                                              [](const HeadsOfCall&) { return false; }};
  static constexpr std::array list{&turned_heads, &byte_heads, &tiled_heads, &float_heads, &stored_heads, &by_aten};
  const HeadsOfCall heads(attention, result);
  return run_first("ipex::attention", list, heads);
}

}  // namespace ipex::runtime
