// Heads of pairs of bfloat16, or of floats that are rounded to these, by AMX's tiles (kernels/tile_attention.h).
#include "ops/attention/heads_of_call.h"

namespace ipex::runtime {
namespace {

template <typename T>
bool attend_by_tiles(const HeadsOfCall& heads, const TileAttentionKernels& kernel) {
  return heads.attend_all(
      kernel, [&](int64_t i) { return heads.with_places<T>(TileAttentionHead{heads.head<AttentionHead>(i)}, i); });
}

}  // namespace

const AttentionAlgorithm tiled_heads{
    "tiles",
    [](const HeadsOfCall& heads) -> const char* {
      constexpr int64_t most_beside_tiles = 3;  // queries, which are not worth packing keys into tiles for
      const AttentionHeads& attention = heads.attention();
      if (!kernels().optional.tile_attention) return "this CPU has no tiles";
      if (!attention.multiplies_pairs()) return "it multiplies no bfloat16";
      if (attention.row_scales) return "its keys are codes";
      return attention.query.size(2) > most_beside_tiles ? nullptr : "it has few queries";
    },
    [](const HeadsOfCall& heads) {
      const TileAttentionFormats& tiles = *kernels().optional.tile_attention;
      return heads.attention().query.dtype == at::kFloat ? attend_by_tiles<float>(heads, tiles.floats)
                                                         : attend_by_tiles<uint16_t>(heads, tiles.bfloat16);
    }};

}  // namespace ipex::runtime
