// A mutex that a forked process finds unlocked, and what it guards whole.
//
// Only the thread that forks lives on in the new process. A mutex that another one held would be locked there for good.
// So fork() waits until all of these are free, and takes them along.
#pragma once

#include <mutex>

namespace ipex::runtime {

// For short sections that take no other lock and do not fork.
class ForkSafeMutex {
 public:
  ForkSafeMutex();
  ~ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  friend class ForkSafeMutexes;

  std::mutex mutex_;
  // All of them are in a list.
  ForkSafeMutex* previous_ = nullptr;
  ForkSafeMutex* next_ = nullptr;
};

// While one of these lives, fork() waits. For longer sections, under locks that are not ours: oneDNN's, above all. May be
// nested, and may take a ForkSafeMutex, but never under one.
class ForkWaits {
 public:
  ForkWaits();
  ~ForkWaits();
  ForkWaits(const ForkWaits&) = delete;
  ForkWaits& operator=(const ForkWaits&) = delete;
};

}  // namespace ipex::runtime
