#include "threads/fork_safe_mutex.h"

#ifdef __unix__
#include <pthread.h>
#endif

namespace ipex::runtime {

class ForkSafeMutexes {
 public:
  // Never destroyed: mutexes of static objects may outlive everything else.
  static ForkSafeMutexes& instance() {
    static auto* const all = new ForkSafeMutexes;
    return *all;
  }

  void add(ForkSafeMutex& mutex) {
    const std::lock_guard lock(mutex_);
    mutex.next_ = first_;
    if (first_) first_->previous_ = &mutex;
    first_ = &mutex;
  }

  void remove(ForkSafeMutex& mutex) {
    const std::lock_guard lock(mutex_);
    (mutex.previous_ ? mutex.previous_->next_ : first_) = mutex.next_;
    if (mutex.next_) mutex.next_->previous_ = mutex.previous_;
  }

 private:
  ForkSafeMutexes() {
#ifdef __unix__
    pthread_atfork([] { instance().lock_all(); }, [] { instance().unlock_all(); }, [] { instance().unlock_all(); });
#endif
  }

  void lock_all() {
    mutex_.lock();
    for (ForkSafeMutex* mutex = first_; mutex; mutex = mutex->next_) mutex->lock();
  }

  void unlock_all() {
    for (ForkSafeMutex* mutex = first_; mutex; mutex = mutex->next_) mutex->unlock();
    mutex_.unlock();
  }

  std::mutex mutex_;
  ForkSafeMutex* first_ = nullptr;
};

ForkSafeMutex::ForkSafeMutex() { ForkSafeMutexes::instance().add(*this); }
ForkSafeMutex::~ForkSafeMutex() { ForkSafeMutexes::instance().remove(*this); }

}  // namespace ipex::runtime
