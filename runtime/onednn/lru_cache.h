// A small cache with a bound, for primitives keyed by shape. A model that sees a new shape at every call must not grow.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "memory/emptied_cache.h"
#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {

// Safe for many threads. Values are shared: one that is evicted lives on until its last user is done.
template <typename Key, typename Value>
class LruCache final : EmptiedCache {
 public:
  enum class Holds { what_empty_cache_may_take, weights };
  explicit LruCache(size_t capacity, Holds holds = Holds::what_empty_cache_may_take)
      : capacity_(capacity), holds_(holds) {
    join();
  }
  ~LruCache() { leave(); }

  // The value for `key`, made by `make` when it is not there. `make` runs outside the lock: two threads may both make
  // one, and the first to finish wins.
  template <typename Make>
  std::shared_ptr<const Value> get(const Key& key, Make&& make) {
    if (auto found = find(key)) return found;
    auto made = std::make_shared<const Value>(make());
    std::shared_ptr<const Value> evicted;  // goes after the lock: it may give back memory, which takes another one
    const std::lock_guard lock(mutex_);
    if (auto found = find_locked(key)) return found;
    entries_.emplace_front(key, std::move(made));
    if (entries_.size() > capacity_) {
      evicted = std::move(entries_.back().second);
      entries_.pop_back();
    }
    return entries_.front().second;
  }

  // All that is held, the last used first.
  std::vector<std::shared_ptr<const Value>> values() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<const Value>> values;
    for (const auto& [key, value] : entries_) values.push_back(value);
    return values;
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  void empty(std::vector<std::shared_ptr<const void>>& values) override {
    if (holds_ == Holds::weights) return;
    const std::lock_guard lock(mutex_);
    for (auto& [key, value] : entries_) values.push_back(std::move(value));
    entries_.clear();
  }

  std::shared_ptr<const Value> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    return find_locked(key);
  }

  // A list walk: the capacity is small and the key in use is at the front.
  std::shared_ptr<const Value> find_locked(const Key& key) {
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->first == key) {
        entries_.splice(entries_.begin(), entries_, it);
        return entries_.front().second;
      }
    }
    return nullptr;
  }

  const size_t capacity_;
  const Holds holds_;
  mutable ForkSafeMutex mutex_;
  std::list<std::pair<Key, std::shared_ptr<const Value>>> entries_;
};

}  // namespace ipex::runtime
