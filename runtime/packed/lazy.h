// Something that is made at the first call that wants it, by one thread while others wait, and stays.
#pragma once

#include <memory>
#include <mutex>

namespace ipex::runtime {

template <typename T>
class Lazy {
 public:
  using Pointer = typename std::unique_ptr<const T>::pointer;

  // `make` gives a unique_ptr. Where it throws, the next call tries again.
  template <typename Make>
  Pointer get(Make&& make) const {
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (!state_->value) state_->value = make();
    return state_->value.get();
  }

  // Null where nobody has wanted it yet.
  Pointer peek() const {
    std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->value.get();
  }

 private:
  struct State {
    std::mutex mutex;
    std::unique_ptr<const T> value;
  };
  // Apart, so that what holds it can be moved.
  std::unique_ptr<State> state_ = std::make_unique<State>();
};

}  // namespace ipex::runtime
