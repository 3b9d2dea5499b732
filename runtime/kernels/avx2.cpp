#define IPEX_ISA avx2
#define IPEX_WIDTH 8
#define IPEX_ROWS_OF_3_VECTORS 4
#define IPEX_ROWS_OF_2_VECTORS 6
#include "kernels/kernels.inc"
