#include "onednn/cache_of_onednn.h"

#include <cstddef>
#include <mutex>

#include "onednn/dnnl.h"

// oneDNN has these for its tests. dnnl_set_primitive_cache_capacity looks at all keys.
namespace dnnl::impl {

dnnl_status_t get_primitive_cache_size(int* size);
size_t set_primitive_cache_capacity_without_clearing(size_t capacity);

}  // namespace dnnl::impl

namespace ipex::runtime {

CacheOfOneDnn& CacheOfOneDnn::instance() {
  static auto* const cache = new CacheOfOneDnn;
  return *cache;
}

void CacheOfOneDnn::leave() {
  is_left_ = true;
  dnnl::impl::set_primitive_cache_capacity_without_clearing(0);
}

// It is cleared where the values end, and no lock is held: others may be making primitives.
void CacheOfOneDnn::empty(std::vector<std::shared_ptr<const void>>& values) {
  values.push_back(std::shared_ptr<const void>(nullptr, [this](std::nullptr_t) { clear(); }));
}

void CacheOfOneDnn::clear() {
  const ForkWaits until_done;
  const std::unique_lock lock(in_use_);
  if (is_left_) return;
  const int capacity = dnnl::get_primitive_cache_capacity();
  dnnl::set_primitive_cache_capacity(0);
  dnnl::set_primitive_cache_capacity(capacity);
  count();
}

void CacheOfOneDnn::count() {
  int size = 0;
  dnnl::impl::get_primitive_cache_size(&size);
  size_ = size;
}

}  // namespace ipex::runtime
