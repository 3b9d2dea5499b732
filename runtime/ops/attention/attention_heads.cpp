#include "ops/attention/attention_heads.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "packed/call_conditions.h"
#include "packed/damaged.h"
#include "packed/float_rows.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"
#include "threads/thread_count.h"

namespace ipex::runtime {
namespace {

at::Tensor with_dense_rows(at::Tensor mask, int64_t keys) {
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

// A head that is not, or not all, floats. `floats` has all but the places of its numbers.
struct StoredHead {
  AttentionHead floats;
  const char *query, *key, *value;
  char* result;
};

// The part of a kernel's description that has the masks.
template <typename Head>
Head& masked(Head& head) {
  return head;
}
AttentionHead& masked(StoredHead& head) { return head.floats; }
AttentionHead& masked(TileAttentionHead& head) { return head.shape; }

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

// Kernels of floats, for heads of 16 bits, or of keys and values in codes: keys and values of a head are widened before its
// queries, and these some at a time. Few queries read keys and values as they lie. Products, weights and sums are floats; the
// result is rounded once.
class StoredAttention {
 public:
  StoredAttention(const AttentionKernels& kernel, at::ScalarType dtype, at::ScalarType kept)
      : kernel_(kernel),
        dtype_(dtype),
        kept_(kept),
        halves_(halves_of(dtype)),
        codes_(coded_rows_of(kept)),
        attend_few_(kept == at::kBFloat16        ? kernel.attend_bfloat16
                    : kept == at::kHalf          ? kernel.attend_float16
                    : kept == at::kChar          ? kernel.attend_int8
                    : kept == at::kFloat8_e4m3fn ? kernel.attend_e4m3
                                                 : kernel.attend_e5m2) {}

  int64_t queries_at_once(int64_t keys) const { return kernel_.queries_at_once(keys); }

  int64_t scratch_size(const StoredHead& head) const {
    const Room room(*this, head, nullptr);
    return kernel_.scratch_size(room.head) + room.size;
  }

  bool prepare(const StoredHead& head, float* memory) const {
    if (reads_as_it_lies(head)) return true;
    const Room room(*this, head, memory);
    const AttentionHead& floats = head.floats;
    widen_kept(head.key, floats.key_stride, floats.key_scales, floats.keys, floats.width, room.key);
    widen_kept(head.value, floats.value_stride, floats.value_scales, floats.keys, floats.value_width, room.value);
    return kernel_.prepare(room.head, memory + room.size);
  }

  bool attend(const StoredHead& head, int64_t first, int64_t last, float* memory) const {
    const Room room(*this, head, memory);
    const bool as_it_lies = reads_as_it_lies(head);
    for (int64_t blocks = at::divup(last - first, at_once(head)); blocks > 0; --blocks) {
      const int64_t end = first + at::divup(last - first, blocks);
      AttentionHead some = room.head;
      if (halves_) {
        widen(*halves_, query_row(head, first), head.floats.query_stride, end - first, head.floats.width, room.query);
        some.query = room.query - first * some.query_stride;
        some.result = room.result - first * some.result_stride;
      }
      const bool finite = as_it_lies ? attend_few_(some, head.key, head.value, first, end, memory + room.size)
                                     : kernel_.attend(some, first, end, memory + room.size);
      if (!finite) return false;
      for (int64_t i = first; halves_ && i < end; ++i) {
        halves_->narrow(some.result + i * some.result_stride, some.value_width,
                        head.result + i * head.floats.result_stride * size_of(dtype_));
      }
      first = end;
    }
    return true;
  }

 private:
  static int64_t size_of(at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

  // What `prepare` looks at in keys that a causal query does not see, it wants as floats. Widening codes takes longer than
  // to read them twice.
  bool reads_as_it_lies(const StoredHead& head) const {
    constexpr int64_t most_of_codes = 4;
    return head.floats.queries <= (codes_ ? most_of_codes : most_few_queries) && !head.floats.is_causal;
  }

  int64_t at_once(const StoredHead& head) const {
    return reads_as_it_lies(head) ? most_few_queries : queries_at_once(head.floats.keys);
  }

  const char* query_row(const StoredHead& head, int64_t i) const {
    return head.query + i * head.floats.query_stride * size_of(dtype_);
  }

  // Where the floats of a head lie, before what the kernel needs.
  struct Room {
    Room(const StoredAttention& attention, const StoredHead& of, float* memory) : head(of.floats) {
      const int64_t at_once = std::min(head.queries, attention.at_once(of));
      const auto take = [&](int64_t rows, int64_t width) {
        constexpr int64_t floats_of_a_line = 16;
        float* const found = memory + size;
        size += at::divup(rows * width, floats_of_a_line) * floats_of_a_line;
        return found;
      };
      if (attention.reads_as_it_lies(of)) {
        head.queries = at_once;
      } else {
        head.key = key = take(head.keys, head.width);
        head.value = value = take(head.keys, head.value_width);
        head.key_stride = head.width;
        head.value_stride = head.value_width;
      }
      if (!attention.halves_) {
        head.query = reinterpret_cast<const float*>(of.query);
        head.result = reinterpret_cast<float*>(of.result);
        return;
      }
      query = take(at_once, head.width);
      result = take(at_once, head.value_width);
      head.query_stride = head.width;
      head.result_stride = head.value_width;
    }

    AttentionHead head;
    float *key = nullptr, *value = nullptr, *query = nullptr, *result = nullptr;
    int64_t size = 0;
  };

  void widen_kept(const char* from, int64_t stride, const float* scales, int64_t rows, int64_t width, float* to) const {
    if (!codes_) return widen(*halves_of(kept_), from, stride, rows, width, to);
    for (int64_t i = 0; i < rows; ++i) {
      codes_->widen(reinterpret_cast<const uint8_t*>(from) + i * stride, width, scales[i], to + i * width);
    }
  }

  static void widen(const HalvesKernels& halves, const char* from, int64_t stride, int64_t rows, int64_t width,
                    float* to) {
    if (stride == width) return halves.widen(from, rows * width, to);
    constexpr auto size = static_cast<int64_t>(sizeof(uint16_t));
    for (int64_t i = 0; i < rows; ++i) halves.widen(from + i * stride * size, width, to + i * width);
  }

  const AttentionKernels& kernel_;
  at::ScalarType dtype_, kept_;
  const HalvesKernels* halves_;  // of queries and results; null for floats
  const CodedRowKernels* codes_;
  AttentionKernels::AttendStored attend_few_;
};

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

template <typename Kernels>
bool attend_floats(const HeadsOfCall& heads, const Kernels& kernel) {
  return heads.attend_all(kernel, [&](int64_t i) {
    auto head = heads.head<AttentionHead>(i);
    head.query = heads.query<float>(i);
    head.key = heads.key<float>(i);
    head.value = heads.value<float>(i);
    head.result = heads.result<float>(i);
    return head;
  });
}

bool attend_stored(const HeadsOfCall& heads, const StoredAttention& kernel) {
  return heads.attend_all(kernel, [&](int64_t i) {
    StoredHead head{.floats = heads.head<AttentionHead>(i),
                    .query = heads.query<char>(i),
                    .key = heads.key<char>(i),
                    .value = heads.value<char>(i),
                    .result = heads.result<char>(i)};
    head.floats.key_scales = heads.key_scales(i);
    head.floats.value_scales = heads.value_scales(i);
    return head;
  });
}

template <typename T>
bool attend_by_tiles(const HeadsOfCall& heads, const TileAttentionKernels& kernel) {
  return heads.attend_all(kernel, [&](int64_t i) {
    return TileAttentionHead{.shape = heads.head<AttentionHead>(i),
                             .query = heads.query<T>(i),
                             .key = heads.key<T>(i),
                             .value = heads.value<T>(i),
                             .result = heads.result<T>(i)};
  });
}

bool attend_bytes(const HeadsOfCall& heads, const AttentionAffines& affines) {
  const AffineRounding rounding(affines.result.value_or(Affine{1, 0}));
  const auto unit = static_cast<float>(affines.query.scale * affines.key.scale);
  return heads.attend_all(kernels().byte_attention, [&](int64_t i) {
    auto head = heads.head<ByteAttentionHead>(i);
    head.scale *= unit;
    head.query = heads.query<uint8_t>(i);
    head.key = heads.key<uint8_t>(i);
    head.value = heads.value<uint8_t>(i);
    head.query_zero = static_cast<int32_t>(affines.query.zero_point);
    head.value_zero = static_cast<int32_t>(affines.value.zero_point);
    head.value_scale = static_cast<float>(affines.value.scale);
    head.floats = affines.result ? nullptr : heads.result<float>(i);
    head.numbers = affines.result ? heads.result<uint8_t>(i) : nullptr;
    head.inverse_scale = rounding.inverse_scale;
    head.zero_point = rounding.zero_point;
    return head;
  });
}

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

bool lie_turned(const AttentionHeads& attention) {
  const auto lies_turned = [](const HeadRows& x) { return x.stride(2) == 1 && x.stride(3) > 1 && x.size(3) > 1; };
  return attention.query.dtype == at::kFloat && !attention.rounds && !attention.affines && !attention.is_causal &&
         lies_turned(attention.query) && lies_turned(attention.key) && lies_turned(attention.value);
}

bool attend(const AttentionHeads& attention, const HeadRows& result) {
  const HeadsOfCall heads(attention, result);
  if (lie_turned(attention)) return attend_floats(heads, kernels().turned_attention);
  if (attention.affines) return attend_bytes(heads, *attention.affines);
  const at::ScalarType dtype = attention.query.dtype;
  const bool is_of_pairs = dtype == at::kBFloat16 || (dtype == at::kFloat && attention.rounds);
  const OptionalKernels& optional = kernels().optional;
  constexpr int64_t most_beside_tiles = 3;  // queries, which are not worth packing keys into tiles for
  if (is_of_pairs && !attention.row_scales && optional.tile_attention && attention.query.size(2) > most_beside_tiles) {
    return dtype == at::kFloat ? attend_by_tiles<float>(heads, optional.tile_attention->floats)
                               : attend_by_tiles<uint16_t>(heads, optional.tile_attention->bfloat16);
  }
  const bool multiplies_pairs = is_of_pairs && optional.attention_of_pairs;
  const AttentionKernels& kernel = multiplies_pairs ? *optional.attention_of_pairs : kernels().attention;
  if (dtype == at::kFloat && !attention.row_scales) return attend_floats(heads, kernel);
  return attend_stored(heads, StoredAttention(kernel, dtype, attention.key.dtype));
}

}  // namespace ipex::runtime
