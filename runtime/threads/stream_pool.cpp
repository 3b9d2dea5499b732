// One queue of requests, and a thread for each stream that takes them. ipex/stream_pool.h
#include <ipex/stream_pool.h>

#include <ATen/core/grad_mode.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <latch>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "threads/parallel.h"
#include "threads/pool.h"
#include "threads/team.h"

namespace ipex {
namespace {

void run_on(const std::vector<int64_t>& cpus) {
  const size_t most = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
  cpu_set_t* set = CPU_ALLOC(most);
  if (!set) throw std::bad_alloc();
  const size_t size = CPU_ALLOC_SIZE(most);
  CPU_ZERO_S(size, set);
  for (const int64_t cpu : cpus) CPU_SET_S(cpu, size, set);
  sched_setaffinity(0, size, set);  // where it is refused, the thread stays where it may be: slower, and right
  CPU_FREE(set);
}

struct Request {
  std::vector<c10::IValue> inputs;
  StreamPool::Done done;
};

}  // namespace

// Each thread holds it: `done` may drop the pool that calls it.
class StreamPool::Streams : public std::enable_shared_from_this<Streams> {
 public:
  Streams(torch::jit::Module module, const StreamPoolOptions& options)
      : plan_(plan_streams(options, usable_cpus(), cpu_quota())),
        most_waiting_(options.max_queue > 0 ? options.max_queue : 16 * plan_.streams),
        module_(std::move(module)),
        forward_(module_.get_method("forward")),
        not_ready_(plan_.streams) {}

  void start() {
    // Where there are more OpenMP threads in all than CPUs, none looks out for its next work, and each op of aten's begins with wakeups.
    if (plan_.threads_per_stream > 1) runtime::end_team();
    try {
      for (int64_t i = 0; i < plan_.streams; ++i) {
        threads_.emplace_back([own = shared_from_this(), i] { own->work(i); });
      }
    } catch (...) {  // the system has no more threads
      close();
      throw;
    }
    not_ready_.wait();
    if (error_) {
      close();
      std::rethrow_exception(error_);
    }
  }

  bool is_of_this_process() const { return process_ == getpid(); }

  void submit(Request request) {
    TORCH_CHECK(
        is_of_this_process(),
        "ipex.StreamPool: expected a pool of this process, got one from before a fork, whose threads are not here. "
        "Make the pool in the process that uses it.");
    std::unique_lock lock(mutex_);
    has_room_.wait(lock, [this] { return is_closed_ || static_cast<int64_t>(waiting_.size()) < most_waiting_; });
    TORCH_CHECK(!is_closed_, "ipex.StreamPool: expected an open pool, got a closed one. Make a new one.");
    waiting_.push_back(std::move(request));
    has_request_.notify_one();
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    has_request_.notify_all();
    has_room_.notify_all();
    // A stream can't wait for itself, nor for who waits for it. The others end when their requests are answered.
    std::unique_lock lock(joining_, std::defer_lock);
    if (streams_of_this_thread == this) {
      if (!lock.try_lock()) return;
      for (std::thread& thread : threads_) thread.detach();
    } else {
      lock.lock();
      for (std::thread& thread : threads_) thread.join();
    }
    threads_.clear();
  }

  const StreamPlan& plan() const { return plan_; }

 private:
  void work(int64_t stream) {
    try {
      serve(stream);
    } catch (...) {  // before it was ready: the system has no memory for it
      {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      not_ready_.count_down();
    }
  }

  void serve(int64_t stream) {
    streams_of_this_thread = this;
    pthread_setname_np(pthread_self(), ("ipex stream " + std::to_string(stream % 1000)).c_str());
    const auto threads = static_cast<int>(plan_.threads_per_stream);
    runtime::use_threads(threads);
    // The thread itself may be on any CPU of its stream: those that aten makes begin where it may be.
    if (!plan_.cpus.empty()) run_on(plan_.cpus[stream]);
    runtime::Pool pool(threads, [&](int thread) {
      runtime::start_worker();
      if (!plan_.cpus.empty()) run_on({plan_.cpus[stream][thread]});
    });
    const runtime::UsePool use_pool(pool);
    not_ready_.count_down();
    const at::NoGradGuard no_gradients;
    while (true) {
      Request request;
      {
        std::unique_lock lock(mutex_);
        has_request_.wait(lock, [this] { return is_closed_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        request = std::move(waiting_.front());
        waiting_.pop_front();
      }
      has_room_.notify_one();
      answer(request);
    }
  }

  void answer(Request& request) {
    c10::IValue result;
    std::exception_ptr error;
    try {
      result = forward_(std::move(request.inputs));
    } catch (...) {
      error = std::current_exception();
    }
    request.inputs.clear();
    try {
      request.done(std::move(result), error);
    } catch (...) {  // nobody is there to catch it
    }
  }

  static inline thread_local const Streams* streams_of_this_thread = nullptr;

  const pid_t process_ = getpid();
  const StreamPlan plan_;
  const int64_t most_waiting_;
  const torch::jit::Module module_;
  const torch::jit::Method forward_;
  std::latch not_ready_;      // streams that are not yet where they belong
  std::exception_ptr error_;  // of one that could not begin

  std::mutex mutex_;
  std::condition_variable has_request_, has_room_;
  std::deque<Request> waiting_;
  bool is_closed_ = false;

  std::mutex joining_;
  std::vector<std::thread> threads_;
};

StreamPool::StreamPool(torch::jit::Module module, const StreamPoolOptions& options)
    : streams_(std::make_shared<Streams>(std::move(module), options)) {
  streams_->start();
}

StreamPool::~StreamPool() {
  // After a fork its threads are not here, but who waits for them would wait for ever.
  if (!streams_->is_of_this_process()) {
    new std::shared_ptr<Streams>(streams_);
    return;
  }
  streams_->close();
}

std::future<c10::IValue> StreamPool::submit(std::vector<c10::IValue> inputs) {
  const auto promise = std::make_shared<std::promise<c10::IValue>>();
  submit(std::move(inputs), [promise](c10::IValue result, const std::exception_ptr& error) {
    if (error) return promise->set_exception(error);
    promise->set_value(std::move(result));
  });
  return promise->get_future();
}

void StreamPool::submit(std::vector<c10::IValue> inputs, Done done) {
  streams_->submit({std::move(inputs), std::move(done)});
}

void StreamPool::close() {
  if (streams_->is_of_this_process()) streams_->close();
}

const StreamPlan& StreamPool::plan() const { return streams_->plan(); }

}  // namespace ipex
