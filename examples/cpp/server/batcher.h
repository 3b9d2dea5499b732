// Joins requests to batches and runs them on worker threads.
//
// Requests wait in one queue. Those whose tensors have the same dtypes and sizes, but for the first, form a group. A
// worker takes a group that fills a batch, or whose oldest request has waited for `most_delay`. A full queue takes no
// more: whoever asks is told at once, instead of waiting longer and longer.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace server {

struct BatcherOptions {
  int workers = 1;
  int threads = 1;  // of each worker, for one call of the model
  int64_t most_rows = 8;
  std::chrono::microseconds most_delay{2000};
  size_t queue = 64;
  // Whether what aten computes inside of the model comes from ipex's allocator too.
  bool use_allocator = false;
};

class Batcher {
 public:
  using Tensors = std::vector<at::Tensor>;
  // Is called by several workers at once. Returns a row for each row of its inputs.
  using Run = std::function<Tensors(const Tensors&)>;
  // Told of each batch before it runs.
  using Observer = std::function<void(int64_t rows)>;

  // A request that was taken.
  class Ticket {
   public:
    bool is_ready_within(std::chrono::milliseconds time) const {
      return result_.wait_for(time) == std::future_status::ready;
    }
    // Throws what the model threw.
    Tensors result() { return result_.get(); }

   private:
    friend class Batcher;
    std::future<Tensors> result_;
    std::weak_ptr<void> waiting_;
  };

  Batcher(BatcherOptions options, Run run, Observer observer);
  ~Batcher();

  // Nothing where the queue is full, or `stop` was called.
  std::optional<Ticket> submit(Tensors inputs);
  // Takes a request out of the queue, if it is still there.
  void cancel(const Ticket& ticket);
  size_t queued() const;
  // Runs what waits, and ends the workers.
  void stop();

 private:
  struct Waiting {
    Tensors inputs;
    std::string group;
    std::chrono::steady_clock::time_point since;
    std::promise<Tensors> result;
    int64_t rows() const { return inputs[0].size(0); }
  };
  using Batch = std::vector<std::shared_ptr<Waiting>>;

  void work();
  // Empty when there is nothing more to do.
  Batch next_batch();
  Batch take_ready_batch(std::chrono::steady_clock::time_point now);
  void run(Batch& batch);

  const BatcherOptions options_;
  const Run run_;
  const Observer observer_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::shared_ptr<Waiting>> queue_;  // the oldest first
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace server
