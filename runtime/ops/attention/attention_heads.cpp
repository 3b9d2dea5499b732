#include "ops/attention/attention_heads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "threads/grain.h"
#include "threads/thread_count.h"

namespace ipex::runtime {
namespace {

// The first element of a head.
const float* head_of(const at::Tensor& tensor, int64_t batch, int64_t head) {
  return tensor.const_data_ptr<float>() + batch * tensor.stride(0) + head * tensor.stride(1);
}

at::Tensor with_dense_rows(at::Tensor mask, int64_t keys) {
  if (mask.dim() == 0) mask = mask.unsqueeze(0);
  if (mask.size(-1) == keys) return mask.stride(-1) == 1 || keys == 1 ? mask : mask.contiguous();
  std::vector<int64_t> sizes = mask.sizes().vec();
  sizes.back() = keys;
  return mask.expand(sizes).contiguous();
}

// A mask of all heads, and where that of each head begins.
class ExpandedMask {
 public:
  ExpandedMask(const HeadMask& mask, int64_t queries, int64_t keys) {
    std::vector<int64_t> sizes = mask.split;
    sizes.insert(sizes.end(), {queries, keys});
    values_ = with_dense_rows(mask.values, keys).expand(sizes);
  }

  const float* of(int64_t head) const {
    int64_t offset = 0;
    for (int64_t i = values_.dim() - 3; i >= 0; --i) {
      offset += head % values_.size(i) * values_.stride(i);
      head /= values_.size(i);
    }
    return values_.const_data_ptr<float>() + offset;
  }

  int64_t row_stride() const { return values_.stride(-2); }

 private:
  at::Tensor values_;
};

}  // namespace

at::Tensor shrunk(at::Tensor mask) {
  for (int64_t i = 0; i < mask.dim(); ++i) {
    if (mask.stride(i) == 0 && mask.size(i) > 1) mask = mask.narrow(i, 0, 1);
  }
  return mask;
}

bool attend(const AttentionHeads& attention, const at::Tensor& result) {
  const auto& [query, key, value, masks, scale, is_causal, head_scales, rounds, joined] = attention;
  const int64_t batch = query.size(0), heads = query.size(1), queries = query.size(2), keys = key.size(2);
  float* const results = result.mutable_data_ptr<float>();
  TORCH_INTERNAL_ASSERT(masks.size() <= most_masks);
  std::vector<ExpandedMask> added;
  for (const HeadMask& mask : masks) added.emplace_back(mask, queries, keys);
  const at::Tensor scales = head_scales.defined() ? head_scales.expand({batch, heads, 1, 1}) : head_scales;
  const auto describe = [&](int64_t index) {
    const int64_t b = index / heads, h = index % heads, shared = h * key.size(1) / heads;
    return AttentionHead{.query = head_of(query, b, h),
                         .key = head_of(key, b, shared),
                         .value = head_of(value, b, shared),
                         .query_stride = query.stride(2),
                         .key_stride = key.stride(2),
                         .value_stride = value.stride(2),
                         .queries = queries,
                         .keys = keys,
                         .width = query.size(3),
                         .value_width = value.size(3),
                         .scale = scales.defined() ? scale * *head_of(scales, b, h) : scale,
                         .mask = added.empty() ? nullptr : added[0].of(index),
                         .mask_stride = added.empty() ? 0 : added[0].row_stride(),
                         .second_mask = added.size() < 2 ? nullptr : added[1].of(index),
                         .second_mask_stride = added.size() < 2 ? 0 : added[1].row_stride(),
                         .is_causal = is_causal,
                         .result = results + b * result.stride(0) + h * result.stride(1),
                         .result_stride = result.stride(2)};
  };

  // A thread takes some blocks of queries, one head after the other. It packs the keys of each head that it meets.
  const AttentionKernels* of_pairs = rounds ? kernels().optional.attention_of_pairs : nullptr;
  const AttentionKernels& kernel = of_pairs ? *of_pairs : kernels().attention;
  const int64_t count = batch * heads, threads = thread_count();
  const int64_t most_blocks = at::divup(queries, kernel.queries_at_once(keys));
  constexpr int64_t least_queries = 16;  // of a block: fewer are not worth packing keys for
  // As few as give all threads the same, or else many small ones.
  const int64_t blocks_of_equal_shares = threads / std::gcd(threads, count);
  const int64_t blocks = blocks_of_equal_shares * least_queries <= queries
                             ? blocks_of_equal_shares
                             : std::min(most_blocks, at::divup(4 * threads, count));
  const int64_t products_of_a_block = at::divup(queries, blocks) * keys * (query.size(3) + value.size(3));
  constexpr int64_t products_worth_waking = 1 << 16;
  const int64_t pieces = count * blocks;
  // By the thread that reads them, unless several read the same.
  const bool joins_heads = joined && blocks == 1 && heads == key.size(1);
  if (joined && !joins_heads) joined->write_all();
  std::atomic<bool> finite = true;
  at::parallel_for(0, pieces, grain_of(pieces, pieces * products_of_a_block, products_worth_waking),
                   [&](int64_t first, int64_t last) {
                     const at::Tensor memory = scratch(sizeof(float) * kernel.scratch_size(describe(0)));
                     auto* floats = static_cast<float*>(memory.data_ptr());
                     for (int64_t i = first; i < last && finite; ++i) {
                       const AttentionHead head = describe(i / blocks);
                       const bool is_new = i == first || i % blocks == 0;
                       const int64_t block = i % blocks;
                       if (joins_heads) joined->write(i / heads, i % heads);
                       if ((is_new && !kernel.prepare(head, floats)) ||
                           !kernel.attend(head, queries * block / blocks, queries * (block + 1) / blocks, floats)) {
                         finite = false;
                       }
                     }
                   });
  return finite;
}

}  // namespace ipex::runtime
