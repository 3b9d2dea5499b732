// Something that is made at the first call that wants it, by one thread while others wait, and stays.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {

template <typename T>
class Lazy {
 public:
  using Pointer = typename std::unique_ptr<const T>::pointer;

  // `make` gives a unique_ptr. Where it throws, the next call tries again.
  template <typename Make>
  Pointer get(Make&& make) const {
    if (Pointer made = peek()) return made;
    const ForkWaits fork_waits;
    const std::lock_guard lock(state_->mutex);
    if (!state_->value) state_->value = make();
    state_->made.store(state_->value.get(), std::memory_order_release);
    return state_->value.get();
  }

  // Null where nobody has wanted it yet.
  Pointer peek() const { return state_->made.load(std::memory_order_acquire); }

 private:
  struct State {
    std::mutex mutex;
    std::unique_ptr<const T> value;
    std::atomic<Pointer> made = nullptr;
  };
  // Apart, so that what holds it can be moved.
  std::unique_ptr<State> state_ = std::make_unique<State>();
};

}  // namespace ipex::runtime
