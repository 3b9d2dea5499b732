// Kernels of our own, compiled once per instruction set. They know nothing of torch.
#pragma once

#include "kernels/embedding_bag.h"
#include "kernels/recurrent.h"

namespace ipex::runtime {

struct Kernels {
  RecurrentKernels recurrent;
  EmbeddingBagKernels embedding_bag;
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

// Those for the CPU at hand.
const Kernels& kernels();

}  // namespace ipex::runtime
