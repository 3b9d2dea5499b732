// Kernels of our own, compiled once per instruction set. They know nothing of torch.
#pragma once

#include "kernels/attention.h"
#include "kernels/byte_attention.h"
#include "kernels/byte_tiles.h"
#include "kernels/bytes_product.h"
#include "kernels/channels.h"
#include "kernels/coded_rows.h"
#include "kernels/codes_product.h"
#include "kernels/depthwise.h"
#include "kernels/elementwise_program.h"
#include "kernels/embedding_bag.h"
#include "kernels/few_channels.h"
#include "kernels/few_rows.h"
#include "kernels/group_norm.h"
#include "kernels/halves.h"
#include "kernels/many_rows.h"
#include "kernels/norms.h"
#include "kernels/pairs_product.h"
#include "kernels/pooling.h"
#include "kernels/quantize.h"
#include "kernels/recurrent.h"
#include "kernels/resample.h"
#include "kernels/rotary.h"
#include "kernels/softmax.h"
#include "kernels/tile_attention.h"
#include "kernels/tile_product.h"
#include "kernels/transpose.h"
#include "kernels/turned_attention.h"
#include "kernels/updates.h"
#include "kernels/winograd.h"

namespace ipex::runtime {

// Families of kernels that only some of the CPUs of an instruction set have. Null where the CPU lacks the instructions, or
// is slow at them, or a cap forbids them.
struct OptionalKernels {
  const PairsProductKernels* pairs_product = nullptr;
  // With factors rounded to bfloat16.
  const AttentionKernels* attention_of_pairs = nullptr;
  const TileAttentionFormats* tile_attention = nullptr;
  const TileProductKernels* tile_product = nullptr;
  const ByteTilesKernels* byte_tiles = nullptr;
};

struct Kernels {
  RecurrentKernels recurrent;
  EmbeddingBagKernels embedding_bag;
  NormKernels norms;
  AttentionKernels attention;
  TurnedAttentionKernels turned_attention;
  FewRowsKernels few_rows;
  ManyRowsKernels many_rows;
  DepthwiseKernels depthwise;
  FewChannelsKernels few_channels;
  ChannelKernels channels;
  GroupNormFormats group_norm;
  SoftmaxKernels softmax;
  WinogradKernels winograd;
  PoolingKernels pooling;
  ResampleKernels resample;
  TransposeKernels transpose;
  RotaryKernels rotary;
  UpdateKernels updates;
  ProgramKernels programs;
  ProgramSumKernels program_sums;
  QuantizeKernels quantize;
  HalvesFormats halves;
  CodedRowFormats coded_rows;
  CodesProductKernels codes_product;
  // With VNNI or AMX, where the CPU has it.
  BytesProductKernels bytes_product;
  ByteAttentionKernels byte_attention;
  OptionalKernels optional = {};
};

namespace portable {
extern const Kernels kernels;
}
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}

namespace avx2_vnni {
extern const BytesProductKernels bytes_product;
extern const CodesProductKernels codes_product;
extern const ByteAttentionKernels byte_attention;
}  // namespace avx2_vnni
namespace avx512_vnni {
extern const BytesProductKernels bytes_product;
extern const CodesProductKernels codes_product;
extern const ByteAttentionKernels byte_attention;
}  // namespace avx512_vnni
namespace avx512_bf16 {
extern const PairsProductKernels pairs_product;
extern const AttentionKernels attention;
}  // namespace avx512_bf16
namespace amx {
extern const PairsProductKernels pairs_product;
extern const TileAttentionFormats tile_attention;
extern const BytesProductKernels bytes_product;
extern const ByteTilesKernels byte_tiles;
extern const ByteAttentionKernels byte_attention;
extern const TileProductKernels tile_product;
}  // namespace amx

// The kernels for the CPU at hand, or for what it is limited to (ipex/isa.h). The first call fixes the choice, and throws
// where there are none.
const Kernels& kernels();

}  // namespace ipex::runtime
