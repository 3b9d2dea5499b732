// A small cache with a bound, for what is made once for each shape. A model that sees a new shape at every call must not grow.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "memory/emptied_cache.h"
#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {

// The memory of a value, where it is known. oneDNN does not tell that of a primitive, which is some 10 KB.
template <typename Value>
size_t known_bytes(const Value&) {
  return 0;
}

// Safe for many threads. Values are shared: one that is evicted lives on until its last user is done.
template <typename Key, typename Value>
class LruCache final : EmptiedCache {
 public:
  enum class Holds { what_empty_cache_may_take, weights };
  explicit LruCache(size_t most_values, Holds holds = Holds::what_empty_cache_may_take)
      : LruCache(most_values, ~size_t{0}, holds) {}
  // The one used last is held whatever its size.
  LruCache(size_t most_values, size_t most_bytes, Holds holds = Holds::what_empty_cache_may_take)
      : most_values_(most_values), most_bytes_(most_bytes), holds_(holds) {
    join();
  }
  ~LruCache() { leave(); }

  // The value for `key`, made by `make` when it is not there. `make` runs outside the lock: two threads may both make
  // one, and the first to finish wins.
  template <typename Make>
  std::shared_ptr<const Value> get(const Key& key, Make&& make) {
    if (auto found = find(key)) return found;
    auto made = std::make_shared<const Value>(make());
    Entries evicted;  // go after the lock: they may give back memory, which takes another one
    const std::lock_guard lock(mutex_);
    if (auto found = find_locked(key)) return found;
    entries_.emplace_front(key, made);
    evicted.splice(evicted.end(), entries_, first_beyond_bounds(), entries_.end());
    count();
    return made;
  }

  // Null where it is not held.
  std::shared_ptr<const Value> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    return find_locked(key);
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
  using Entries = std::list<std::pair<Key, std::shared_ptr<const Value>>>;

  void empty(std::vector<std::shared_ptr<const void>>& values) override {
    if (holds_ == Holds::weights) return;
    const std::lock_guard lock(mutex_);
    for (auto& [key, value] : entries_) values.push_back(std::move(value));
    entries_.clear();
    count();
  }

  Kept kept() const override { return {kept_values_, kept_bytes_}; }

  void count() {
    if (holds_ == Holds::weights) return;
    int64_t bytes = 0;
    for (const auto& [key, value] : entries_) bytes += static_cast<int64_t>(known_bytes(*value));
    kept_values_ = static_cast<int64_t>(entries_.size());
    kept_bytes_ = bytes;
  }

  typename Entries::const_iterator first_beyond_bounds() const {
    size_t values = 0, bytes = 0;
    return std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
      bytes += known_bytes(*entry.second);
      return ++values > most_values_ || (values > 1 && bytes > most_bytes_);
    });
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

  const size_t most_values_, most_bytes_;
  const Holds holds_;
  mutable ForkSafeMutex mutex_;
  Entries entries_;
  std::atomic<int64_t> kept_values_ = 0, kept_bytes_ = 0;
};

}  // namespace ipex::runtime
