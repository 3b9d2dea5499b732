// The input projection of a recurrent layer by oneDNN, for math mode BF32 on CPUs with AMX, where that computes products
// of bfloat16 numbers much faster than any kernel those of float32 ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "onednn/lru_cache.h"
#include "onednn/primitive.h"

namespace ipex::runtime {

class AmxProjection {
 public:
  // Whether this CPU has AMX, and these are enough rows for a weight of this many elements to make up for a call.
  static bool is_worth_it(int64_t rows, int64_t elements);

  // A dense weight of [columns, depth], which is gone afterwards if nobody else holds it, and a bias.
  AmxProjection(at::Tensor weight, at::Tensor bias, const StoredForms& stored);

  // input . weight^T + bias, for a dense input of [rows, depth]. Undefined where oneDNN has nothing for it.
  at::Tensor run(const at::Tensor& input) const;

  // Of the primitives made, the last used first.
  std::vector<std::string> math_modes() const;

 private:
  dnnl::memory::desc any_weight_desc() const;
  dnnl::primitive_desc describe(int64_t rows, const dnnl::memory::desc& weight) const;

  int64_t columns_, depth_;
  at::Tensor bias_;
  std::optional<BlockedWeight> weight_;  // none where oneDNN has no kernel
  mutable LruCache<std::vector<int64_t>, std::optional<Prepared>> primitives_{4};
};

}  // namespace ipex::runtime
