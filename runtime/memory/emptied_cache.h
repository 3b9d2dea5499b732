// Caches that ipex::empty_cache() empties.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace ipex::runtime {

class EmptiedCache {
 public:
  struct Kept {
    int64_t entries = 0;
    int64_t bytes = 0;  // where they are known

    Kept& operator+=(const Kept& more) {
      entries += more.entries;
      bytes += more.bytes;
      return *this;
    }
  };

  static void empty_all();
  static Kept all_kept();

 protected:
  // What derives from it calls these when it is complete, and as it begins to end: it may be emptied in between.
  void join();
  void leave();
  ~EmptiedCache() = default;

 private:
  // Moves what is held to `values`. They end where no lock is held: one may hold such a cache itself.
  virtual void empty(std::vector<std::shared_ptr<const void>>& values) = 0;
  // Takes no lock.
  virtual Kept kept() const = 0;

  EmptiedCache* previous_ = nullptr;
  EmptiedCache* next_ = nullptr;
};

}  // namespace ipex::runtime
