#include "threads/fork_safe_mutex.h"

#ifdef __unix__
#include <pthread.h>
#endif

#include <condition_variable>
#include <new>

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
    if (depth_++ > 0) return;
    const std::lock_guard lock(mutex_);
    ++sections_;
  }

  void end_section() {
    if (--depth_ > 0) return;
    const std::lock_guard lock(mutex_);
    if (--sections_ == 0) none_left_.notify_all();
  }

 private:
  ForkSafeMutexes() {
#ifdef __unix__
    pthread_atfork([] { instance().lock_all(); }, [] { instance().unlock_all(); }, [] { instance().begin_anew(); });
#endif
  }

  void lock_all() {
    std::unique_lock lock(mutex_);
    none_left_.wait(lock, [this] { return sections_ == 0; });
    for (ForkSafeMutex* mutex = first_; mutex; mutex = mutex->next_) mutex->lock();
    lock.release();
  }

  void unlock_all() {
    for (ForkSafeMutex* mutex = first_; mutex; mutex = mutex->next_) mutex->unlock();
    mutex_.unlock();
  }

  // In the new process. Threads that waited here do not exist in it.
  void begin_anew() {
    new (&none_left_) std::condition_variable;
    unlock_all();
  }

  // How many sections this thread is in: only the outermost counts.
  static thread_local int depth_;

  std::mutex mutex_;
  std::condition_variable none_left_;
  int sections_ = 0;
  ForkSafeMutex* first_ = nullptr;
};

thread_local int ForkSafeMutexes::depth_ = 0;

ForkSafeMutex::ForkSafeMutex() { ForkSafeMutexes::instance().add(*this); }
ForkSafeMutex::~ForkSafeMutex() { ForkSafeMutexes::instance().remove(*this); }

ForkWaits::ForkWaits() { ForkSafeMutexes::instance().begin_section(); }
ForkWaits::~ForkWaits() { ForkSafeMutexes::instance().end_section(); }

}  // namespace ipex::runtime
