// attention.h on the tiles of AMX: factors of products are bfloat16 numbers, sums and weights floats.
#pragma once

#include "kernels/attention.h"

namespace ipex::runtime {

// Of numbers that the kernels are made for. The pointers of `shape` are null, but for its masks.
struct TileAttentionHead {
  AttentionHead shape;
  const void *query = nullptr, *key = nullptr, *value = nullptr;
  void* result = nullptr;
};

// As AttentionKernels.
struct TileAttentionKernels {
  int64_t (*queries_at_once)(int64_t keys);
  int64_t (*scratch_size)(const TileAttentionHead&);
  bool (*prepare)(const TileAttentionHead&, float* scratch);
  bool (*attend)(const TileAttentionHead&, int64_t first, int64_t last, float* scratch);
};

struct TileAttentionFormats {
  TileAttentionKernels floats;  // rounded before they are multiplied
  TileAttentionKernels bfloat16;
};

}  // namespace ipex::runtime
