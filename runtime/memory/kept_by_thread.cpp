#include "memory/kept_by_thread.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <new>

namespace ipex::runtime {
namespace {

constexpr size_t line_classes = 8;

// All threads that keep blocks. Never destroyed: a thread may end after everything else.
struct Threads {
  ForkSafeMutex mutex;
  std::vector<KeptByThread*> all;
  KeptByThread::Taken taken_by_ended;

  static Threads& instance() {
    static auto* const threads = new Threads;
    return *threads;
  }
};

}  // namespace

SizeClass size_class_of(size_t bytes) {
  const size_t lines = bytes / line;
  if (lines <= line_classes) return {static_cast<int8_t>(lines - 1), bytes};
  const int doubling = std::bit_width(lines - 1) - 1;  // the size is above 2^doubling lines, and at most twice that
  const size_t step = size_t{1} << (doubling - 2);
  const size_t steps = (lines - (size_t{1} << doubling) + step - 1) / step;
  return {static_cast<int8_t>(line_classes + 4 * (doubling - 3) + steps - 1),
          ((size_t{1} << doubling) + steps * step) * line};
}

KeptByThread* KeptByThread::of_this_thread() {
  thread_local bool has_ended = false;
  struct Owner {
    std::unique_ptr<KeptByThread> kept = std::make_unique<KeptByThread>();
    ~Owner() { has_ended = true; }
  };
  if (has_ended) return nullptr;
  try {
    thread_local Owner owner;
    return owner.kept.get();
  } catch (const std::bad_alloc&) {  // not now: memory is given back here too
    return nullptr;
  }
}

KeptByThread::KeptByThread() {
  const std::lock_guard lock(Threads::instance().mutex);
  Threads::instance().all.push_back(this);
}

KeptByThread::~KeptByThread() {
  {
    Threads& threads = Threads::instance();
    const std::lock_guard lock(threads.mutex);
    std::erase(threads.all, this);
    threads.taken_by_ended.count += taken_.count;
    threads.taken_by_ended.bytes += taken_.bytes;
  }
  drop_blocks(empty(nullptr));
}

Block* KeptByThread::empty(Block* list) {
  for (Block*& first : first_) {
    while (first) {
      Block* block = std::exchange(first, first->next);
      block->next = std::exchange(list, block);
    }
  }
  bytes_ = 0;
  return list;
}

Block* KeptByThread::empty_all() {
  const AllLocked locked;
  Block* list = nullptr;
  for (KeptByThread* kept : Threads::instance().all) list = kept->empty(list);
  return list;
}

KeptByThread::AllLocked::AllLocked() {
  Threads& threads = Threads::instance();
  threads.mutex.lock();
  for (KeptByThread* kept : threads.all) kept->mutex_.lock();
}

KeptByThread::AllLocked::~AllLocked() {
  Threads& threads = Threads::instance();
  for (KeptByThread* kept : threads.all) kept->mutex_.unlock();
  threads.mutex.unlock();
}

KeptByThread::Taken KeptByThread::AllLocked::taken() const {
  const Threads& threads = Threads::instance();
  Taken taken = threads.taken_by_ended;
  for (const KeptByThread* kept : threads.all) {
    taken.count += kept->taken_.count;
    taken.bytes += kept->taken_.bytes;
  }
  return taken;
}

}  // namespace ipex::runtime
