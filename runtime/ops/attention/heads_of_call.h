// The heads of a call as the kernels describe one, and a way through all of them. What computes a call is a list of algorithms,
// each in a file with the reasons for which it declines.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "ops/attention/attention_heads.h"
#include "packed/algorithm.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"
#include "threads/thread_count.h"

namespace ipex::runtime {

inline at::Tensor with_dense_rows(at::Tensor mask, int64_t keys) {
  if (mask.dim() == 0) mask = mask.unsqueeze(0);
  if (mask.size(-1) == keys) return mask.stride(-1) == 1 || keys == 1 ? mask : contiguous_result(mask);
  std::vector<int64_t> sizes = mask.sizes().vec();
  sizes.back() = keys;
  return contiguous_result(mask.expand(sizes));
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

// The part of a kernel's description that has the masks.
template <typename Head>
Head& masked(Head& head) {
  return head;
}
inline AttentionHead& masked(TileAttentionHead& head) { return head.shape; }

// A grid's mask for some queries of a head at a time.
class SumsOfGrid {
 public:
  SumsOfGrid(const GridMask& grid, int64_t queries_at_once) : grid_(grid), queries_at_once_(queries_at_once) {}

  // Floats that `attend` needs.
  int64_t size() const {
    constexpr int64_t most_of_a_register = 16;
    return queries_at_once_ * keys() + most_of_a_register;
  }

  // As kernel.attend.
  template <typename Kernels, typename Head>
  bool attend(const Kernels& kernel, Head head, int64_t index, int64_t first, int64_t last, float* scratch,
              float* sums) const {
    const int64_t rows = grid_.rows.size(2), columns = grid_.columns.size(2), queries = grid_.rows.size(1);
    for (int64_t end; first < last; first = end) {
      end = std::min(last, first + queries_at_once_);
      for (int64_t i = first; i < end; ++i) {
        const int64_t row = index * queries + i;
        kernels().attention.add_sides(grid_.rows.const_data_ptr<float>() + row * rows, rows,
                                      grid_.columns.const_data_ptr<float>() + row * columns, columns,
                                      sums + (i - first) * keys());
      }
      masked(head).mask = sums - first * keys();
      masked(head).mask_stride = keys();
      if (!kernel.attend(head, first, end, scratch)) return false;
    }
    return true;
  }

 private:
  int64_t keys() const { return grid_.rows.size(2) * grid_.columns.size(2); }

  const GridMask& grid_;
  int64_t queries_at_once_;
};

// All heads: `describe` gives the kernel's description of one.
template <typename Kernels, typename Describe>
bool attend_all(const Kernels& kernel, const AttentionHeads& attention, const Describe& describe) {
  const HeadRows &query = attention.query, &value = attention.value;
  const int64_t queries = query.size(2), keys = attention.key.size(2);
  // A thread takes some blocks of queries, one head after the other. It packs the keys of each head that it meets.
  const int64_t count = query.size(0) * query.size(1), threads = thread_count();
  const int64_t at_once = kernel.queries_at_once(keys), most_blocks = at::divup(queries, at_once);
  const auto grid = attention.grid ? std::optional(SumsOfGrid(*attention.grid, at_once)) : std::nullopt;
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
  const JoinedHeads* joined = attention.joined;
  const int64_t heads = query.size(1);
  const bool joins_heads = joined && blocks == 1 && heads == attention.key.size(1);
  if (joined && !joins_heads) joined->write_all();
  std::atomic<bool> finite = true;
  parallel_for(
      pieces, grain_of(pieces, pieces * products_of_a_block, products_worth_waking), [&](int64_t first, int64_t last) {
        const int64_t own = kernel.scratch_size(describe(0));
        const at::Tensor memory = scratch(sizeof(float) * (own + (grid ? grid->size() : 0)));
        auto* floats = static_cast<float*>(memory.data_ptr());
        for (int64_t i = first; i < last && finite; ++i) {
          const auto head = describe(i / blocks);
          const bool is_new = i == first || i % blocks == 0;
          const int64_t block = i % blocks, from = queries * block / blocks, to = queries * (block + 1) / blocks;
          if (joins_heads) joined->write(i / heads, i % heads);
          const bool is_prepared = !is_new || kernel.prepare(head, floats);
          const bool is_done =
              is_prepared && (grid ? grid->attend(kernel, head, i / blocks, from, to, floats, floats + own)
                                   : kernel.attend(head, from, to, floats));
          if (!is_done) finite = false;
        }
      });
  return finite;
}

// The heads of a call, numbered through its batches.
class HeadsOfCall {
 public:
  HeadsOfCall(const AttentionHeads& attention, const HeadRows& result)
      : attention_(attention),
        result_(result),
        heads_(attention.query.size(1)),
        stepped_(lie_turned(attention) ? 3 : 2) {
    TORCH_INTERNAL_ASSERT(attention.masks.size() + (attention.grid ? 1 : 0) <= most_masks);
    const HeadRows& query = attention.query;
    for (const HeadMask& mask : attention.masks) added_.emplace_back(mask, query.size(2), attention.key.size(2));
    if (attention.head_scales.defined()) scales_ = attention.head_scales.expand({query.size(0), heads_, 1, 1});
  }

  const AttentionHeads& attention() const { return attention_; }
  const AttentionKernels& float_kernels() const {
    const bool has_pairs = attention_.multiplies_pairs() && kernels().optional.attention_of_pairs;
    return has_pairs ? *kernels().optional.attention_of_pairs : kernels().attention;
  }

  // What heads of all kinds have in common.
  template <typename Head>
  Head head(int64_t index) const {
    Head head{};
    head.query_stride = attention_.query.stride(stepped_);
    head.key_stride = attention_.key.stride(stepped_);
    head.value_stride = attention_.value.stride(stepped_);
    head.queries = attention_.query.size(2);
    head.keys = attention_.key.size(2);
    head.width = attention_.query.size(3);
    head.value_width = attention_.value.size(3);
    head.scale = attention_.scale;
    if (scales_.defined()) {
      head.scale *=
          scales_.const_data_ptr<float>()[index / heads_ * scales_.stride(0) + index % heads_ * scales_.stride(1)];
    }
    const size_t second = attention_.grid ? 0 : 1;                                         // a grid is the first
    head.mask = attention_.grid  ? attention_.grid->rows.template const_data_ptr<float>()  // not null: there is one
                : added_.empty() ? nullptr
                                 : added_[0].of(index);
    head.mask_stride = attention_.grid || added_.empty() ? 0 : added_[0].row_stride();
    head.second_mask = added_.size() <= second ? nullptr : added_[second].of(index);
    head.second_mask_stride = added_.size() <= second ? 0 : added_[second].row_stride();
    head.is_causal = attention_.is_causal;
    head.past = attention_.past;
    head.result_stride = result_.stride(stepped_);
    return head;
  }

  template <typename T>
  const T* query(int64_t index) const {
    return reinterpret_cast<const T*>(attention_.query.row(index / heads_, index % heads_));
  }
  template <typename T>
  const T* key(int64_t index) const {
    return shared_head_of<T>(attention_.key, index);
  }
  template <typename T>
  const T* value(int64_t index) const {
    return shared_head_of<T>(attention_.value, index);
  }
  // Of rows of codes; null where there are none.
  const float* key_scales(int64_t index) const {
    return attention_.row_scales ? shared_head_of<float>(attention_.row_scales->key, index) : nullptr;
  }
  const float* value_scales(int64_t index) const {
    return attention_.row_scales ? shared_head_of<float>(attention_.row_scales->value, index) : nullptr;
  }
  template <typename T>
  T* result(int64_t index) const {
    return reinterpret_cast<T*>(result_.row(index / heads_, index % heads_));
  }

  // The head with the places of its numbers.
  template <typename T, typename Head>
  Head with_places(Head head, int64_t index) const {
    head.query = query<T>(index);
    head.key = key<T>(index);
    head.value = value<T>(index);
    head.result = result<T>(index);
    return head;
  }

  template <typename Kernels, typename Describe>
  bool attend_all(const Kernels& kernel, const Describe& describe) const {
    return runtime::attend_all(kernel, attention_, describe);
  }

 private:
  template <typename T>
  const T* shared_head_of(const HeadRows& rows, int64_t index) const {
    return reinterpret_cast<const T*>(rows.row(index / heads_, index % heads_ * rows.size(1) / heads_));
  }

  const AttentionHeads& attention_;
  const HeadRows& result_;
  int64_t heads_;
  size_t stepped_;  // the dimension of a head whose elements are a stride apart
  std::vector<ExpandedMask> added_;
  at::Tensor scales_;
};

// False where aten has to compute the call.
using AttentionAlgorithm = Algorithm<const HeadsOfCall, bool>;
extern const AttentionAlgorithm turned_heads, byte_heads, tiled_heads, float_heads, stored_heads;

}  // namespace ipex::runtime
