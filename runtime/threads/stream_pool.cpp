// One queue of requests, and a thread for each stream that takes them. ipex/stream_pool.h
#include <ipex/stream_pool.h>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <latch>
#include <mutex>
#include <string>
#include <thread>

// MKL's, which torch has in it or not. Its number of threads is a setting of its own.
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);

namespace ipex {
namespace {

void run_on(const std::vector<int64_t>& cpus) {
  const size_t most = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
  cpu_set_t* set = CPU_ALLOC(most);
  const size_t size = CPU_ALLOC_SIZE(most);
  CPU_ZERO_S(size, set);
  for (const int64_t cpu : cpus) CPU_SET_S(cpu, size, set);
  sched_setaffinity(0, size, set);  // where it is refused, the thread stays where it may be: slower, and right
  CPU_FREE(set);
}

// Of this thread alone. at::set_num_threads would also be for threads that start later.
void use_threads(int threads) {
  at::get_num_threads();  // takes over torch's setting now: later, that would undo what follows
  omp_set_num_threads(threads);
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(threads);
}

// The thread itself may be on any CPU of its stream: threads that OpenMP makes later begin where it may be.
void pin_team(const std::vector<int64_t>& cpus) {
  run_on(cpus);
#pragma omp parallel num_threads(static_cast<int>(cpus.size()))
  if (const int i = omp_get_thread_num(); i > 0) run_on({cpus[i]});
}

// Ends the threads that OpenMP keeps for the caller; its next parallel region makes them anew. Where there are more threads in
// all than CPUs, libgomp lets no team spin for its next work, and each op of each stream begins with wakeups.
void end_team_of_caller() { omp_pause_resource_all(omp_pause_soft); }

struct Request {
  std::vector<c10::IValue> inputs;
  StreamPool::Done done;
};

}  // namespace

class StreamPool::Streams {
 public:
  Streams(torch::jit::Module module, const StreamPoolOptions& options)
      : plan_(plan_streams(options, usable_cpus(), cpu_quota())),
        most_waiting_(options.max_queue > 0 ? options.max_queue : 16 * plan_.streams),
        module_(std::move(module)),
        forward_(module_.get_method("forward")),
        not_ready_(plan_.streams) {
    if (plan_.threads_per_stream > 1) end_team_of_caller();
    try {
      for (int64_t i = 0; i < plan_.streams; ++i) threads_.emplace_back([this, i] { work(i); });
    } catch (...) {  // the system has no more threads
      close();
      throw;
    }
    not_ready_.wait();
  }

  ~Streams() { close(); }

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
    const std::lock_guard lock(joining_);
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  const StreamPlan& plan() const { return plan_; }

 private:
  void work(int64_t stream) {
    pthread_setname_np(pthread_self(), ("ipex stream " + std::to_string(stream % 1000)).c_str());
    use_threads(static_cast<int>(plan_.threads_per_stream));
    if (!plan_.cpus.empty()) pin_team(plan_.cpus[stream]);
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
    request.done(std::move(result), error);
  }

  const pid_t process_ = getpid();
  const StreamPlan plan_;
  const int64_t most_waiting_;
  const torch::jit::Module module_;
  const torch::jit::Method forward_;
  std::latch not_ready_;  // streams that are not yet where they belong

  std::mutex mutex_;
  std::condition_variable has_request_, has_room_;
  std::deque<Request> waiting_;
  bool is_closed_ = false;

  std::mutex joining_;
  std::vector<std::thread> threads_;
};

StreamPool::StreamPool(torch::jit::Module module, const StreamPoolOptions& options)
    : streams_(std::make_unique<Streams>(std::move(module), options)) {}

StreamPool::~StreamPool() {
  // After a fork its threads are not here, but who waits for them would wait for ever.
  if (!streams_->is_of_this_process()) (void)streams_.release();
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
