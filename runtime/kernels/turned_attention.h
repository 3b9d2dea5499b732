// Attention (attention.h) where query, key, value and result lie turned: the elements of a row are `stride` apart, and
// row lies beside row. So do the heads of attention over channels, whose rows are an image's channels and as long as it
// has positions.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace ipex::runtime {

// As in AttentionKernels. A head is not causal.
struct TurnedAttentionKernels {
  int64_t (*queries_at_once)(int64_t keys);
  int64_t (*scratch_size)(const AttentionHead&);
  bool (*prepare)(const AttentionHead&, float* scratch);
  bool (*attend)(const AttentionHead&, int64_t first, int64_t last, float* scratch);
};

}  // namespace ipex::runtime
