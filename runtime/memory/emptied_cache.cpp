#include "memory/emptied_cache.h"

#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {
namespace {

struct Caches {
  ForkSafeMutex mutex;
  EmptiedCache* first = nullptr;

  // Never ends: models may end after what is static.
  static Caches& instance() {
    static auto* caches = new Caches;
    return *caches;
  }
};

}  // namespace

void EmptiedCache::join() {
  Caches& all = Caches::instance();
  const std::lock_guard lock(all.mutex);
  next_ = all.first;
  if (next_) next_->previous_ = this;
  all.first = this;
}

void EmptiedCache::leave() {
  Caches& all = Caches::instance();
  const std::lock_guard lock(all.mutex);
  (previous_ ? previous_->next_ : all.first) = next_;
  if (next_) next_->previous_ = previous_;
}

void EmptiedCache::empty_all() {
  std::vector<std::shared_ptr<const void>> values;
  const ForkWaits until_done;  // below, a cache's lock is taken under this one
  Caches& all = Caches::instance();
  const std::lock_guard lock(all.mutex);
  for (EmptiedCache* cache = all.first; cache; cache = cache->next_) cache->empty(values);
}

EmptiedCache::Kept EmptiedCache::all_kept() {
  Caches& all = Caches::instance();
  const std::lock_guard lock(all.mutex);
  Kept sum;
  for (const EmptiedCache* cache = all.first; cache; cache = cache->next_) sum += cache->kept();
  return sum;
}

}  // namespace ipex::runtime
