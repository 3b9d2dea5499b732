// The kernels that AVX512_VNNI adds to those of AVX-512.
#define IPEX_ISA avx512_vnni
#define IPEX_WIDTH 16
#define IPEX_ROWS_OF_3_VECTORS 8
#define IPEX_ROWS_OF_2_VECTORS 8
#include "kernels/basics.inc"

#include "kernels/bytes_product.inc"
#include "kernels/codes_product.inc"
// These need it.
#include "kernels/attention_parts.inc"
#include "kernels/byte_attention.inc"

namespace ipex::runtime::avx512_vnni {

const BytesProductKernels bytes_product = bytes_product_kernels;
const CodesProductKernels codes_product = codes_product_kernels;
const ByteAttentionKernels byte_attention = byte_attention_kernels;

}  // namespace ipex::runtime::avx512_vnni
