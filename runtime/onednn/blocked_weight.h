// A weight in the layout that oneDNN asked for. It replaces the plain weight, which is made again from it when wanted.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aot/stored_forms.h"
#include "onednn/dnnl.h"
#include "onednn/lru_cache.h"

namespace ipex::runtime {

// A float32 matrix whose columns lie in panels: `columns` of them side by side, dense for the whole depth. The last panel
// may be padded.
struct Panels {
  const float* data;
  int64_t columns;
  int64_t size;  // elements from one panel to the next
};

// The same of bfloat16: a word is two numbers of a column, neighbours in depth, as in kernels/numbers.h.
struct PairPanels {
  const uint32_t* words;
  int64_t columns;
  int64_t size;  // words from one panel to the next
};

// The form `kind` of a weight in one of oneDNN's layouts: that of `stored`, or else what `make` gives.
at::Tensor stored_in_layout(const StoredForms& stored, const std::string& kind, const dnnl::memory::desc& layout,
                            StoredForms::Make make);

bool is_stored_in_layout(const StoredForms& stored, const std::string& kind, const dnnl::memory::desc& layout);

class BlockedWeight {
 public:
  // Throws dnnl::error where oneDNN can't convert to this layout, or not back. A matrix is packed piece by piece. Where
  // nobody else can read `plain`, the memory of each piece is given back as soon as it is packed; from then on `plain` is
  // undefined, so that nobody takes what is left of it for the weight if a later piece fails.
  //
  // `plain` may be a part of what `plain_desc` describes, where that begins: the rest is there for the kernels only.
  //
  // Where `stored` has the form `kind` in this layout, that is taken and `plain` is not read.
  BlockedWeight(at::Tensor& plain, dnnl::memory::desc plain_desc, const dnnl::memory::desc& blocked_desc,
                StoredForms stored, std::string kind = "blocked");

  const dnnl::memory::desc& desc() const { return desc_; }
  // None for weights that are laid out otherwise.
  const std::optional<Panels>& panels() const { return panels_; }
  const std::optional<PairPanels>& pair_panels() const { return pair_panels_; }
  // Writes the plain weight into `plain`, which is dense, in the order of the one packed.
  void unpack_into(const at::Tensor& plain) const;
  // The weight in the layout `wanted`, for a primitive that can't take this one: a second copy, of which there is never
  // more than one.
  at::Tensor in_layout(const dnnl::memory::desc& wanted) const;

 private:
  at::Tensor pack(at::Tensor& plain) const;
  void pack_in_pieces(at::Tensor& plain, const at::Tensor& packed) const;

  std::vector<int64_t> plain_sizes_, plain_strides_;
  dnnl::memory::desc plain_desc_;
  dnnl::memory::desc desc_;
  StoredForms stored_;
  std::string kind_;
  at::Tensor bytes_;
  std::optional<Panels> panels_;
  std::optional<PairPanels> pair_panels_;
  using Cache = LruCache<dnnl::memory::desc, at::Tensor>;
  mutable Cache other_layout_{1, Cache::Holds::weights};
};

}  // namespace ipex::runtime
