#include "threads/fork_safe_mutex.h"

#ifdef __unix__
#include <pthread.h>
#endif

#include <shared_mutex>

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

  void begin_section() {
    if (depth_++ == 0) sections_.lock_shared();
  }

  void end_section() {
    if (--depth_ == 0) sections_.unlock_shared();
  }

 private:
  ForkSafeMutexes() {
#ifdef __unix__
    pthread_atfork([] { instance().lock_all(); }, [] { instance().unlock_all(); }, [] { instance().unlock_all(); });
#endif
  }

  // The sections first: they take mutexes.
  void lock_all() {
    sections_.lock();
    mutex_.lock();
    for (ForkSafeMutex* mutex = first_; mutex; mutex = mutex->next_) mutex->lock();
  }

  void unlock_all() {
    for (ForkSafeMutex* mutex = first_; mutex; mutex = mutex->next_) mutex->unlock();
    mutex_.unlock();
    sections_.unlock();
  }

  // How many sections this thread is in: only the outermost locks, or it would wait for a fork that waits for it.
  static thread_local int depth_;

  std::shared_mutex sections_;
  std::mutex mutex_;
  ForkSafeMutex* first_ = nullptr;
};

thread_local int ForkSafeMutexes::depth_ = 0;

ForkSafeMutex::ForkSafeMutex() { ForkSafeMutexes::instance().add(*this); }
ForkSafeMutex::~ForkSafeMutex() { ForkSafeMutexes::instance().remove(*this); }

ForkWaits::ForkWaits() { ForkSafeMutexes::instance().begin_section(); }
ForkWaits::~ForkWaits() { ForkSafeMutexes::instance().end_section(); }

}  // namespace ipex::runtime
