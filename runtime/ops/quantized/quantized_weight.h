// An int8 weight, and copies of it in the layouts that oneDNN's kernels ask for. They hold sums of the weight as well, for
// inputs with a zero point, from which the plain weight can't be made again: so that is kept, a quarter of the float one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <vector>

#include "onednn/blocked_weight.h"
#include "onednn/dnnl.h"
#include "onednn/lru_cache.h"

namespace ipex::runtime {

class QuantizedWeight {
 public:
  explicit QuantizedWeight(at::Tensor plain)
      : plain_(std::move(plain)), stored_(StoredForms::of(plain_, StoredForms::Plain::kept)) {}

  const at::Tensor& plain() const { return plain_; }
  const StoredForms& stored() const { return stored_; }
  // `plain_desc()` gives the plain weight's, as the primitive sees it.
  at::Tensor in_layout(const dnnl::memory::desc& wanted, c10::function_ref<dnnl::memory::desc()> plain_desc) const;
  // The layouts that there are, the last used first.
  std::vector<dnnl::memory::desc> layouts() const;

 private:
  struct Packed {
    dnnl::memory::desc desc;
    at::Tensor bytes;
  };

  at::Tensor plain_;
  StoredForms stored_;
  // One for the usual inputs, one for those that its kernel does not take.
  using Cache = LruCache<dnnl::memory::desc, Packed>;
  mutable Cache packed_{2, Cache::Holds::weights};
};

}  // namespace ipex::runtime
