// The kernels that AVX512_BF16 adds to those of AVX-512.
#define IPEX_ISA avx512_bf16
#define IPEX_WIDTH 16
#define IPEX_ROWS_OF_3_VECTORS 8
#define IPEX_ROWS_OF_2_VECTORS 8
#include "kernels/basics.inc"
#include "kernels/halves.inc"
// Has more formats of elements.
#include "kernels/coded_rows.inc"

#include "kernels/attention_parts.inc"
#include "kernels/many_rows.inc"
#include "kernels/pairs_product.inc"
// Attention is made of products of many rows.
#include "kernels/attention.inc"

namespace ipex::runtime::avx512_bf16 {

const PairsProductKernels pairs_product{1, 1, most_vectors_of_a_panel* width, round_to_pairs,
                                        multiply_many_rows<DotProducts>};
const AttentionKernels attention = attention_kernels<DotProducts>;

}  // namespace ipex::runtime::avx512_bf16
