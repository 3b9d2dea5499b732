#include "packed/packed_weight.h"

#include <ATen/ATen.h>

#include <cstring>
#include <map>

#include "memory/weight_memory.h"
#include "onednn/making.h"
#include "packed/call_conditions.h"
#include "packed/dtype.h"

namespace ipex::runtime {
namespace {

// Where `of` looks: weights by the memory that they came from. It holds none of them.
class Weights {
 public:
  using Pointer = std::shared_ptr<const PackedWeight>;

  // Never destroyed: a context may outlive everything else.
  static Weights& instance() {
    static auto* const weights = new Weights;
    return *weights;
  }

  std::vector<Pointer> from(const c10::StorageImpl* origin) {
    std::vector<Pointer> found;
    const std::lock_guard lock(mutex_);
    const auto [first, last] = weights_.equal_range(origin);
    for (auto entry = first; entry != last; ++entry) {
      if (Pointer weight = entry->second.lock()) found.push_back(std::move(weight));
    }
    return found;
  }

  void add(const c10::StorageImpl* origin, const Pointer& weight) {
    const std::lock_guard lock(mutex_);
    weights_.emplace(origin, weight);
  }

  // Forgets those that are gone.
  void clean(const c10::StorageImpl* origin) {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = weights_.equal_range(origin);
    for (auto entry = first; entry != last;) entry = entry->second.expired() ? weights_.erase(entry) : std::next(entry);
  }

 private:
  ForkSafeMutex mutex_;
  std::multimap<const c10::StorageImpl*, std::weak_ptr<const PackedWeight>> weights_;
};

}  // namespace

std::shared_ptr<const PackedWeight> PackedWeight::of(const at::Tensor& plain, Recipe recipe) {
  const c10::StorageImpl* origin = plain.storage().unsafeGetStorageImpl();
  const at::Tensor dense = plain.detach().contiguous(plain.suggest_memory_format());
  for (const auto& weight : Weights::instance().from(origin)) {
    if (weight->recipe_ == recipe && weight->is_made_from(dense)) return weight;
  }
  auto weight = std::make_shared<const PackedWeight>(dense, plain, std::move(recipe));
  Weights::instance().add(origin, weight);
  return weight;
}

PackedWeight::PackedWeight(at::Tensor plain, const at::Tensor& origin, Recipe recipe)
    : dtype_(plain.scalar_type()),
      sizes_(plain.sizes().vec()),
      format_(plain.suggest_memory_format()),
      recipe_(std::move(recipe)),
      stored_(StoredForms::of(plain, StoredForms::Plain::dropped)),
      origin_(origin.storage().getWeakStorageImpl()),
      plain_(std::move(plain)),
      saved_(c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>()) {}

PackedWeight::~PackedWeight() { Weights::instance().clean(origin_._unsafe_get_target()); }

bool PackedWeight::is_made_from(const at::Tensor& plain) const {
  if (plain.scalar_type() != dtype_ || plain.sizes() != at::IntArrayRef(sizes_)) return false;
  const OutsideOfPythonModes outside;
  const ForkWaits fork_waits;
  const std::lock_guard lock(mutex_);
  const at::Tensor own = blocked_ ? unpacked() : plain_;
  return own.defined() && own.strides() == plain.strides() &&
         (own.const_data_ptr() == plain.const_data_ptr() ||
          std::memcmp(own.const_data_ptr(), plain.const_data_ptr(), plain.nbytes()) == 0);
}

const BlockedWeight* PackedWeight::blocked(Pack pack) const {
  if (is_settled_.load(std::memory_order_acquire)) return blocked_.get();
  const OutsideOfPythonModes outside;
  const ForkWaits fork_waits;
  const std::lock_guard lock(mutex_);
  if (is_settled_) return blocked_.get();
  const char* const lost =
      "ipex: expected memory to pack a weight, got too little, and a part of the weight is lost. "
      "Load the model again, with more memory.";
  TORCH_CHECK(plain_.defined(), lost);
  TORCH_CHECK(has_all_its_memory(plain_), "ipex: expected a weight of ", sizes_,
              ", got a tensor whose memory is gone. Don't resize the storage of what a context was made from.");
  try {
    const Making making;
    if (!reason_against_dtype(dtype_)) blocked_ = pack(plain_);
  } catch (const dnnl::error&) {  // it has no reorder for the dtype
    TORCH_CHECK(plain_.defined(), lost);
  }
  // A weight that stays plain is copied: others may hold it, and write to it.
  if (!blocked_) stored_.check_plain();
  plain_ =
      blocked_ ? at::Tensor() : empty_weight(sizes_, at::TensorOptions(dtype_).memory_format(format_)).copy_(plain_);
  is_settled_.store(true, std::memory_order_release);
  return blocked_.get();
}

at::Tensor PackedWeight::plain(Pack pack) const { return blocked(pack) ? unpacked() : plain_; }

at::Tensor PackedWeight::plain_to_save(Pack pack) const {
  if (!blocked(pack)) return plain_;
  const ForkWaits fork_waits;
  const std::lock_guard lock(saved_mutex_);
  if (auto held = saved_.lock()) {
    const at::Tensor plain(std::move(held));
    if (plain._version() == saved_version_ && plain.sizes() == at::IntArrayRef(sizes_)) return plain;
  }
  const c10::InferenceMode counts_versions(false);
  const at::Tensor plain = unpacked();
  saved_ = plain.getIntrusivePtr();
  saved_version_ = plain._version();
  return plain;
}

const void* PackedWeight::find(std::type_index type) const {
  const std::lock_guard lock(forms_mutex_);
  for (const auto& [kind, form] : forms_) {
    if (kind == type) return form.get();
  }
  return nullptr;
}

void PackedWeight::keep(std::type_index type, std::shared_ptr<const void> form) const {
  const std::lock_guard lock(forms_mutex_);
  forms_.emplace_back(type, std::move(form));
}

at::Tensor PackedWeight::unpacked() const {
  const OutsideOfPythonModes outside;
  at::Tensor plain = at::empty(sizes_, at::TensorOptions(dtype_).memory_format(format_));
  try {
    blocked_->unpack_into(plain);
  } catch (const dnnl::error& error) {
    TORCH_CHECK(false, "ipex: expected oneDNN to unpack a weight of ", sizes_, ", got an error: ", error.what(),
                ". Try again with more memory.");
  }
  return plain;
}

}  // namespace ipex::runtime
