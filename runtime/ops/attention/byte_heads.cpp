// Heads of 8-bit numbers (kernels/byte_attention.h).
#include "ops/attention/heads_of_call.h"

namespace ipex::runtime {
namespace {

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

}  // namespace

const AttentionAlgorithm byte_heads{
    "bytes", [](const HeadsOfCall& heads) { return heads.attention().affines ? nullptr : "its numbers are no bytes"; },
    [](const HeadsOfCall& heads) { return attend_bytes(heads, *heads.attention().affines); }};

}  // namespace ipex::runtime
