// The cache of primitives that oneDNN has itself, for the whole process: layers of one shape share their code by it.
#pragma once

#include <atomic>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "memory/emptied_cache.h"
#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {

class CacheOfOneDnn final : EmptiedCache {
 public:
  // Never ends: models may end after what is static.
  static CacheOfOneDnn& instance();

  // One of these lives while a primitive is made, and the cache is not emptied.
  class Use {
   public:
    Use() : lock_(instance().in_use_) {}
    ~Use() { instance().count(); }

   private:
    const ForkWaits until_done_;
    const std::shared_lock<std::shared_mutex> lock_;
  };

  // It is not looked at any more, and not emptied: a key may be gone (no_memory.h). We have our own caches.
  void leave();

 private:
  CacheOfOneDnn() { join(); }
  void empty(std::vector<std::shared_ptr<const void>>& values) override;
  Kept kept() const override { return {size_, 0}; }
  void clear();
  void count();

  std::shared_mutex in_use_;
  std::atomic<int> size_ = 0;
  std::atomic<bool> is_left_ = false;
};

}  // namespace ipex::runtime
