#define IPEX_ISA portable
#define IPEX_WIDTH 4
#define IPEX_ROWS_OF_3_VECTORS 4
#define IPEX_ROWS_OF_2_VECTORS 6
#include "kernels/kernels.inc"
