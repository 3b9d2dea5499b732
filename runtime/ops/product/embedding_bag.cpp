// embedding_bag without the results that only its gradient needs.
//
//   ipex::embedding_bag(weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx) -> Tensor
//
// Arguments are those of aten::embedding_bag, the result is its first one. aten also works out which bag each index
// belongs to, how many there are in each bag and, for max, where each maximum came from. For mean and max that costs
// more than the embeddings.
// Left to aten: sums of many rows, for which it has a kernel as good as ours, and what is unusual: other dtypes,
// gradients, tensors with gaps, and whatever aten raises an error for.
//
// The same, and an embedding, of a table whose rows are 8-bit numbers, each with a scale and a smallest number of its own:
// a quarter of the memory to read.
//
//   ipex::round_rows(weight) -> (codes, ranges)       uint8 [rows, width], and a scale and the smallest: float32 [rows, 2]
//   ipex::embedding_in_int8(codes, ranges, indices) -> Tensor
//   ipex::embedding_bag_in_int8(codes, ranges, indices, offsets, mode, per_sample_weights, include_last_offset,
//                               padding_idx) -> Tensor
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

// Whether every index is a row and every bag a range of indices, the last one up to the end.
template <typename Index>
bool are_valid(const Bags<Index>& bags, bool include_last_offset) {
  const Index* const last = bags.offsets + bags.offset_count - 1;
  bool valid = bags.offsets[0] == 0 && std::is_sorted(bags.offsets, last + 1);
  valid &= include_last_offset ? *last == bags.index_count : *last <= bags.index_count;
  const auto rows = static_cast<uint64_t>(bags.rows);
  for (int64_t i = 0; i < bags.index_count; ++i) valid &= static_cast<uint64_t>(int64_t{bags.indices[i]}) < rows;
  return valid;
}

// Floats, or codes with ranges.
struct Table {
  at::Tensor rows;
  at::Tensor ranges = {};

  const RowRange* row_ranges() const {
    return ranges.defined() ? reinterpret_cast<const RowRange*>(ranges.const_data_ptr<float>()) : nullptr;
  }
};

// The result, or an undefined tensor when a value is one that aten shall judge.
template <typename Index>
at::Tensor compute(const Table& table, const at::Tensor& indices, const at::Tensor& offsets, int64_t mode,
                   const at::Tensor& scales, bool include_last_offset, int64_t padding) {
  const int64_t count = offsets.size(0) - (include_last_offset ? 1 : 0);
  if (count < 1) return {};
  Bags<Index> bags{table.rows.const_data_ptr(),
                   table.row_ranges(),
                   table.rows.size(0),
                   table.rows.size(1),
                   indices.const_data_ptr<Index>(),
                   indices.size(0),
                   offsets.const_data_ptr<Index>(),
                   offsets.size(0),
                   scales.defined() ? scales.const_data_ptr<float>() : nullptr,
                   static_cast<Reduction>(mode),
                   padding,
                   nullptr};
  if (!are_valid(bags, include_last_offset)) return {};
  const at::Tensor result = empty_result({count, bags.width}, at::kFloat);
  bags.result = result.data_ptr<float>();
  const EmbeddingBagKernels& embedding_bag = kernels().embedding_bag;
  constexpr int64_t elements_worth_waking = 1 << 15;
  const int64_t elements_per_bag = std::max<int64_t>(1, bags.index_count * bags.width / count);
  parallel_for(count, grain_of(count, count * elements_per_bag, elements_worth_waking),
               [&](int64_t first, int64_t last) {
                 if constexpr (std::is_same_v<Index, int32_t>) {
                   embedding_bag.reduce_int32(bags, first, last);
                 } else {
                   embedding_bag.reduce_int64(bags, first, last);
                 }
               });
  return result;
}

bool is_dense_vector(const at::Tensor& tensor) {
  return tensor.dim() == 1 && tensor.is_contiguous() && tensor.device().is_cpu() && !tensor.is_neg();
}

// Where the sums outweigh the call, aten's are as fast as ours.
bool is_worth_it(const at::Tensor& indices, int64_t mode) {
  constexpr int64_t most_indices_of_a_sum = 64;
  return static_cast<Reduction>(mode) != Reduction::sum || indices.numel() <= most_indices_of_a_sum;
}

// Whatever the table is.
bool is_usual(const at::Tensor& indices, const at::Tensor& offsets, int64_t mode, const at::Tensor& scales,
              const std::optional<int64_t>& padding) {
  const bool scales_are_usual =
      !scales.defined() || (mode == static_cast<int64_t>(Reduction::sum) && is_plain_cpu_float(scales) &&
                            !wants_gradient(scales) && is_dense_vector(scales) && scales.size(0) == indices.numel());
  return is_dense_vector(indices) && is_dense_vector(offsets) && indices.scalar_type() == offsets.scalar_type() &&
         (indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt) && scales_are_usual &&
         padding.value_or(0) >= 0;
}

bool is_usual_table(const at::Tensor& weight) {
  return is_plain_cpu_float(weight) && !wants_gradient(weight) && weight.dim() == 2 && weight.is_contiguous();
}

// Undefined where aten shall compute it.
at::Tensor by_kernel(const Table& table, const at::Tensor& indices, const at::Tensor& offsets, int64_t mode,
                     const at::Tensor& scales, bool include_last_offset, const std::optional<int64_t>& padding_idx) {
  if (!is_usual(indices, offsets, mode, scales, padding_idx)) return {};
  return AT_DISPATCH_INDEX_TYPES(indices.scalar_type(), "ipex::embedding_bag", [&] {
    return compute<index_t>(table, indices, offsets, mode, scales, include_last_offset, padding_idx.value_or(-1));
  });
}

// aten takes any, and ends the process.
void check_bags(const char* name, int64_t mode, const at::Tensor& indices, const at::Tensor& offsets) {
  TORCH_CHECK(mode >= 0 && mode <= 2, name, ": expected mode 0, 1 or 2 (sum, mean, max), got ", mode, ".");
  TORCH_CHECK(offsets.dim() == 1, name, ": expected offsets of one dimension, got ", offsets.sizes(), ".");
  TORCH_CHECK(indices.dim() == 1 || static_cast<Reduction>(mode) != Reduction::max, name,
              ": expected indices of one dimension for mode 2 (max), got ", indices.sizes(), ".");
}

// aten ends the process where there are indices and no bags. Without bags no index is read.
at::Tensor those_in_bags(const at::Tensor& indices, const at::Tensor& offsets, bool include_last_offset) {
  const bool has_bags = offsets.numel() > (include_last_offset ? 1 : 0);
  return has_bags || indices.dim() != 1 ? indices : indices.narrow(0, 0, 0);
}

at::Tensor embedding_bag(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets, int64_t mode,
                         const std::optional<at::Tensor>& per_sample_weights, bool include_last_offset,
                         std::optional<int64_t> padding_idx) {
  check_bags("ipex::embedding_bag", mode, indices, offsets);
  if (is_worth_it(indices, mode) && is_usual_table(weight)) {
    const at::Tensor result = by_kernel({weight}, indices, offsets, mode, per_sample_weights.value_or(at::Tensor()),
                                        include_last_offset, padding_idx);
    if (result.defined()) return result;
  }
  return std::get<0>(at::embedding_bag(weight, those_in_bags(indices, offsets, include_last_offset), offsets,
                                       /*scale_grad_by_freq=*/false, mode, /*sparse=*/false, per_sample_weights,
                                       include_last_offset, padding_idx));
}

// Rounded to the nearest of 256 numbers from the row's smallest to its largest.
RowRange round_row(const float* from, int64_t width, uint8_t* to) {
  const auto [low, high] = std::minmax_element(from, from + width);
  const float scale = *high / 255 - *low / 255;  // the difference itself may be infinite
  for (int64_t i = 0; i < width; ++i) {
    const double code = scale > 0 ? (double{from[i]} - *low) / scale : 0;
    to[i] = static_cast<uint8_t>(std::min(std::nearbyint(code), 255.0));
  }
  return {scale, *low};
}

std::tuple<at::Tensor, at::Tensor> round_rows(const at::Tensor& weight) {
  TORCH_CHECK(weight.dim() == 2 && weight.numel() > 0 && is_plain_cpu_float(weight) && has_all_its_memory(weight) &&
                  weight.isfinite().all().item<bool>(),
              "ipex::round_rows: expected a non-empty, finite 2-D CPU weight of float32, got ", weight.scalar_type(),
              " ", weight.sizes(), ". Leave this table in float32.");
  const at::Tensor dense = weight.contiguous();
  const int64_t count = weight.size(0), width = weight.size(1);
  at::Tensor codes = at::empty({count, width}, at::kByte), ranges = at::empty({count, 2}, at::kFloat);
  const auto* from = dense.const_data_ptr<float>();
  auto* to = codes.mutable_data_ptr<uint8_t>();
  auto* range = reinterpret_cast<RowRange*>(ranges.mutable_data_ptr<float>());
  parallel_for(count, at::divup(1 << 15, width), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) range[row] = round_row(from + row * width, width, to + row * width);
  });
  return {codes, ranges};
}

Table table_of(const at::Tensor& codes, const at::Tensor& ranges) {
  const auto is_whole = [](const at::Tensor& tensor, at::ScalarType dtype) {
    return tensor.dim() == 2 && tensor.scalar_type() == dtype && is_plain_cpu(tensor) && tensor.is_contiguous() &&
           has_all_its_memory(tensor);
  };
  TORCH_CHECK(is_whole(codes, at::kByte) && is_whole(ranges, at::kFloat) && ranges.size(0) == codes.size(0) &&
                  ranges.size(1) == 2,
              "ipex::embedding_in_int8: expected codes and ranges as ipex::round_rows makes them, got ",
              codes.scalar_type(), " ", codes.sizes(), " and ", ranges.scalar_type(), " ", ranges.sizes(), ".");
  return {codes, ranges};
}

at::Tensor embedding_in_int8(const at::Tensor& codes, const at::Tensor& ranges, const at::Tensor& indices) {
  const Table table = table_of(codes, ranges);
  const int64_t width = codes.size(1), count = indices.numel();
  at::DimVector sizes(indices.sizes());
  sizes.push_back(width);
  const at::Tensor wide = indices.to(at::kLong).contiguous();
  const auto* row_of = wide.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    TORCH_CHECK_INDEX(row_of[i] >= 0 && row_of[i] < codes.size(0), "index out of range in self");
  }
  const at::Tensor result = at::empty(sizes, at::kFloat);  // from where aten's come: a model may have no packed ops
  const auto* from = codes.const_data_ptr<uint8_t>();
  auto* to = result.mutable_data_ptr<float>();
  constexpr int64_t elements_worth_waking = 1 << 15;
  const auto expand = [&](int64_t first, int64_t last) {
    constexpr int64_t ahead = 64;
    for (int64_t i = first; i < last; ++i) {
      if (i + ahead < last) {
        const int64_t next = row_of[i + ahead];
        __builtin_prefetch(table.row_ranges() + next);
        for (int64_t byte = 0; byte < width; byte += 64) __builtin_prefetch(from + next * width + byte);
      }
      const RowRange range = table.row_ranges()[row_of[i]];
      kernels().embedding_bag.expand_row(from + row_of[i] * width, range, width, to + i * width);
    }
  };
  parallel_for(count, grain_of(count, count * width, elements_worth_waking), expand);
  return result;
}

at::Tensor embedding_bag_in_int8(const at::Tensor& codes, const at::Tensor& ranges, const at::Tensor& indices,
                                 const at::Tensor& offsets, int64_t mode,
                                 const std::optional<at::Tensor>& per_sample_weights, bool include_last_offset,
                                 std::optional<int64_t> padding_idx) {
  check_bags("ipex::embedding_bag_in_int8", mode, indices, offsets);
  const at::Tensor result = by_kernel(table_of(codes, ranges), indices, offsets, mode,
                                      per_sample_weights.value_or(at::Tensor()), include_last_offset, padding_idx);
  if (result.defined()) return result;
  // aten, on a table of the rows that are asked for, one after the other, and one that stands for the padding.
  const at::Tensor floats = embedding_in_int8(codes, ranges, indices.reshape({-1}));
  const at::Tensor table = at::cat({floats, at::zeros({1, floats.size(1)})});
  at::Tensor places = at::arange(indices.numel(), indices.options()).view(indices.sizes());
  if (padding_idx) {
    const int64_t padding = *padding_idx < 0 ? *padding_idx + codes.size(0) : *padding_idx;
    places = places.masked_fill(indices == padding, indices.numel());
    padding_idx = indices.numel();
  }
  return std::get<0>(at::embedding_bag(table, those_in_bags(places, offsets, include_last_offset), offsets,
                                       /*scale_grad_by_freq=*/false, mode, /*sparse=*/false, per_sample_weights,
                                       include_last_offset, padding_idx));
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "round_rows(Tensor weight) -> (Tensor codes, Tensor ranges)", round_rows);
  define(m, "embedding_in_int8(Tensor codes, Tensor ranges, Tensor indices) -> Tensor", embedding_in_int8);
  define(m,
         "embedding_bag_in_int8(Tensor codes, Tensor ranges, Tensor indices, Tensor offsets, int mode, Tensor? "
         "per_sample_weights, "
         "bool include_last_offset, int? padding_idx) -> Tensor",
         embedding_bag_in_int8);
  define(m,
         "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, int mode, Tensor? per_sample_weights, "
         "bool include_last_offset, int? padding_idx) -> Tensor",
         embedding_bag);
}

}  // namespace
}  // namespace ipex::runtime
