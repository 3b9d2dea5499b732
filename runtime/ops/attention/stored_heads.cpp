// Heads that are not, or not all, floats: of 16 bits, or keys and values in codes.
#include "ops/attention/heads_of_call.h"
#include "packed/float_rows.h"

namespace ipex::runtime {
namespace {

// A head that is not, or not all, floats. `floats` has all but the places of its numbers.
struct StoredHead {
  AttentionHead floats;
  const char *query = nullptr, *key = nullptr, *value = nullptr;
  char* result = nullptr;
};

AttentionHead& masked(StoredHead& head) { return head.floats; }

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

bool attend_stored(const HeadsOfCall& heads, const StoredAttention& kernel) {
  return heads.attend_all(kernel, [&](int64_t i) {
    auto head = heads.with_places<char>(StoredHead{heads.head<AttentionHead>(i)}, i);
    head.floats.key_scales = heads.key_scales(i);
    head.floats.value_scales = heads.value_scales(i);
    return head;
  });
}

}  // namespace

const AttentionAlgorithm stored_heads{
    "floats that keys are widened to", [](const HeadsOfCall&) -> const char* { return nullptr; },
    [](const HeadsOfCall& heads) {
      const AttentionHeads& attention = heads.attention();
      return attend_stored(heads, {heads.float_kernels(), attention.query.dtype, attention.key.dtype});
    }};

}  // namespace ipex::runtime
