// Caches that ipex::empty_cache() empties.
#pragma once

#include <memory>
#include <vector>

namespace ipex::runtime {

class EmptiedCache {
 public:
  static void empty_all();

 protected:
  // What derives from it calls these when it is complete, and as it begins to end: it may be emptied in between.
  void join();
  void leave();
  ~EmptiedCache() = default;

 private:
  // Moves what is held to `values`. They end where no lock is held: one may hold such a cache itself.
  virtual void empty(std::vector<std::shared_ptr<const void>>& values) = 0;

  EmptiedCache* previous_ = nullptr;
  EmptiedCache* next_ = nullptr;
};

}  // namespace ipex::runtime
