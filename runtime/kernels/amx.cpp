// The kernels that AMX adds to those of AVX512_BF16.
#define IPEX_ISA amx
#define IPEX_WIDTH 16
#define IPEX_ROWS_OF_3_VECTORS 8
#define IPEX_ROWS_OF_2_VECTORS 8
#include "kernels/basics.inc"
#include "kernels/halves.inc"

#include "kernels/attention_parts.inc"
#include "kernels/many_rows.inc"
#include "kernels/pairs_product.inc"
#include "kernels/tiles_in_use.inc"
// Needs it.
#include "kernels/tiles.inc"
// These need both.
#include "kernels/bytes_product.inc"
#include "kernels/tile_attention.inc"
#include "kernels/tile_pairs.inc"
// These need bytes_product.inc.
#include "kernels/byte_attention.inc"
#include "kernels/quick_activations.inc"
// This one needs both.
#include "kernels/byte_tiles.inc"

namespace ipex::runtime::amx {

const PairsProductKernels pairs_product{rows_of_a_tile, words_of_a_row, tile_product_columns, round_to_tiles,
                                        multiply_by_tiles};
const BytesProductKernels bytes_product{panel_columns_of_bytes, quantize_row, multiply_bytes_by_tiles};
const ByteTilesKernels byte_tiles = byte_tiles_kernels;
const ByteAttentionKernels byte_attention = byte_attention_kernels;
const TileAttentionFormats tile_attention{tile_attention_kernels<TileFloat32>, tile_attention_kernels<TileBfloat16>};

}  // namespace ipex::runtime::amx
