// The products that AMX adds to those of AVX-512.
#define IPEX_ISA amx
#define IPEX_WIDTH 16
#include "kernels/basics.inc"

#include "kernels/tiles_in_use.inc"
// Needs it.
#include "kernels/tile_product.inc"

namespace ipex::runtime::amx {

const TileProductKernels tile_product{are_rows_in_range, split_rows, split_panel, multiply_by_tiles};

}  // namespace ipex::runtime::amx
