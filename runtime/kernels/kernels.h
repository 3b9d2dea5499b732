// Kernels of our own, compiled once per instruction set. They know nothing of torch.
#pragma once

#include "kernels/attention.h"
#include "kernels/bf16_product.h"
#include "kernels/channels.h"
#include "kernels/depthwise.h"
#include "kernels/embedding_bag.h"
#include "kernels/few_rows.h"
#include "kernels/many_rows.h"
#include "kernels/norms.h"
#include "kernels/pooling.h"
#include "kernels/recurrent.h"
#include "kernels/softmax.h"
#include "kernels/winograd.h"

namespace ipex::runtime {

struct Kernels {
  RecurrentKernels recurrent;
  EmbeddingBagKernels embedding_bag;
  NormKernels norms;
  AttentionKernels attention;
  Bf16ProductKernels bf16_product;
  FewRowsKernels few_rows;
  ManyRowsKernels many_rows;
  DepthwiseKernels depthwise;
  ChannelKernels channels;
  SoftmaxKernels softmax;
  WinogradKernels winograd;
  PoolingKernels pooling;
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

// Those for the CPU at hand, or for what it is limited to (ipex/isa.h), which the first call fixes. It throws where
// there are none.
const Kernels& kernels();

}  // namespace ipex::runtime
