#define IPEX_ISA avx512
#define IPEX_WIDTH 16
#define IPEX_ROWS_OF_3_VECTORS 8
#define IPEX_ROWS_OF_2_VECTORS 8
#include "kernels/kernels.inc"
