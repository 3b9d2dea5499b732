// The weight of packed ops: plain until somebody computes with it, then in the layout of oneDNN's kernels.
//
// An object of its own, that contexts share: those of a layer that is called in two places or in two methods, and those
// of tied layers. It never changes for those who read it, and whatever is made from it is made once for all.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <typeindex>
#include <utility>
#include <vector>

#include "aot/stored_forms.h"
#include "onednn/blocked_weight.h"
#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {

class PackedWeight {
 public:
  // All that the layout depends on beside the weight itself.
  using Recipe = std::vector<int64_t>;
  // Gives the weight another layout: see BlockedWeight's constructor.
  using Pack = c10::function_ref<std::unique_ptr<const BlockedWeight>(at::Tensor& plain)>;

  // The weight that others have made from the same tensor with the same recipe, where they still hold one, and else a new
  // one. The same tensor: its memory is the same now, and not a bit of it has changed since.
  static std::shared_ptr<const PackedWeight> of(const at::Tensor& plain, Recipe recipe);

  PackedWeight(at::Tensor plain, const at::Tensor& origin, Recipe recipe);
  ~PackedWeight();
  PackedWeight(const PackedWeight&) = delete;
  PackedWeight& operator=(const PackedWeight&) = delete;

  at::ScalarType dtype() const { return dtype_; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  // Of the plain weight.
  at::MemoryFormat format() const { return format_; }
  // Whoever makes another form of it asks these first.
  const StoredForms& stored() const { return stored_; }

  // The first call packs, while others wait. Null where oneDNN can't on this CPU: then the weight stays plain.
  //
  // Not packed before: the loader of a file holds every plain weight until it is done, and the packed ones beside them
  // would double the peak.
  const BlockedWeight* blocked(Pack pack) const;
  // A new tensor, or where the weight stays plain that.
  at::Tensor plain(Pack pack) const;
  // The same, and while somebody holds one, that one: contexts that share a weight save it once.
  at::Tensor plain_to_save(Pack pack) const;

  // The weight in another form, that `make` gives as a unique_ptr: made by the first call, while others wait, and kept.
  template <typename Form, typename Make>
  const Form& derived(Make&& make) const {
    if (const void* form = find(typeid(Form))) return *static_cast<const Form*>(form);
    const ForkWaits fork_waits;
    const std::lock_guard lock(making_);
    if (const void* form = find(typeid(Form))) return *static_cast<const Form*>(form);
    std::shared_ptr<const Form> owned = make();
    const Form& form = *owned;
    keep(typeid(Form), std::move(owned));
    return form;
  }

  // That form, where a call has made it. Else null.
  template <typename Form>
  const Form* made() const {
    return static_cast<const Form*>(find(typeid(Form)));
  }

 private:
  // Whether it was made from this tensor, or one of the same bits.
  bool is_made_from(const at::Tensor& plain) const;
  at::Tensor unpacked() const;

  // Null where nobody has wanted this form yet.
  const void* find(std::type_index type) const;
  void keep(std::type_index type, std::shared_ptr<const void> form) const;

  const at::ScalarType dtype_;
  const std::vector<int64_t> sizes_;
  const at::MemoryFormat format_;
  const Recipe recipe_;
  const StoredForms stored_;
  // The memory that the weight came from. While it is referred to, no other gets its address.
  const c10::weak_intrusive_ptr<c10::StorageImpl> origin_;

  mutable std::mutex mutex_;
  mutable std::atomic<bool> is_settled_ = false;  // nothing of what follows changes any more
  mutable at::Tensor plain_;                      // until it is packed, or for good
  mutable std::unique_ptr<const BlockedWeight> blocked_;

  mutable std::mutex saved_mutex_;
  mutable c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> saved_;
  mutable uint32_t saved_version_ = 0;

  mutable std::mutex making_;
  mutable ForkSafeMutex forms_mutex_;
  mutable std::vector<std::pair<std::type_index, std::shared_ptr<const void>>> forms_;
};

}  // namespace ipex::runtime
