#include "batcher.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <c10/core/InferenceMode.h>
#include <ipex/memory.h>

#include <map>
#include <sstream>

namespace server {
namespace {

std::string group_of(const Batcher::Tensors& inputs) {
  std::ostringstream group;
  for (const at::Tensor& input : inputs) group << input.scalar_type() << input.sizes().slice(1) << ' ';
  return group.str();
}

}  // namespace

Batcher::Batcher(BatcherOptions options, Run run, Observer observer)
    : options_(options), run_(std::move(run)), observer_(std::move(observer)) {
  for (int i = 0; i < options_.workers; ++i) workers_.emplace_back(&Batcher::work, this);
}

Batcher::~Batcher() { stop(); }

std::optional<Batcher::Ticket> Batcher::submit(Tensors inputs) {
  auto waiting = std::make_shared<Waiting>();
  waiting->group = group_of(inputs);
  waiting->inputs = std::move(inputs);
  Ticket ticket;
  ticket.result_ = waiting->result.get_future();
  ticket.waiting_ = waiting;
  const std::lock_guard lock(mutex_);
  if (stopping_ || queue_.size() >= options_.queue) return std::nullopt;
  waiting->since = std::chrono::steady_clock::now();
  queue_.push_back(std::move(waiting));
  changed_.notify_one();
  return ticket;
}

void Batcher::cancel(const Ticket& ticket) {
  const std::shared_ptr<void> cancelled = ticket.waiting_.lock();
  const std::lock_guard lock(mutex_);
  queue_.remove_if([&](const auto& waiting) { return waiting == cancelled; });
}

size_t Batcher::queued() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

void Batcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& worker : workers_) {
    if (worker.joinable()) worker.join();
  }
}

void Batcher::work() {
  at::set_num_threads(options_.threads);  // of OpenMP, for calls from this thread
  std::optional<ipex::UseAllocator> allocator;
  if (options_.use_allocator) allocator.emplace();
  for (Batch batch = next_batch(); !batch.empty(); batch = next_batch()) run(batch);
}

Batcher::Batch Batcher::next_batch() {
  std::unique_lock lock(mutex_);
  for (;;) {
    Batch batch = take_ready_batch(std::chrono::steady_clock::now());
    if (!batch.empty() || (stopping_ && queue_.empty())) {
      // Another worker sees to what is left: it may wait for an end of delay that nobody waits for yet.
      if (!queue_.empty()) changed_.notify_one();
      return batch;
    }
    if (queue_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, queue_.front()->since + options_.most_delay);
    }
  }
}

Batcher::Batch Batcher::take_ready_batch(std::chrono::steady_clock::time_point now) {
  std::map<std::string, int64_t> rows;
  for (const auto& waiting : queue_) rows[waiting->group] += waiting->rows();
  for (const auto& oldest : queue_) {
    const std::string group = oldest->group;
    if (rows[group] < options_.most_rows && now < oldest->since + options_.most_delay && !stopping_) continue;
    Batch batch;
    int64_t taken = 0;
    for (auto next = queue_.begin(); next != queue_.end();) {
      // A request of more rows than a batch has runs by itself.
      const bool joins = (*next)->group == group && (taken == 0 || taken + (*next)->rows() <= options_.most_rows);
      if (joins) {
        taken += (*next)->rows();
        batch.push_back(*next);
      }
      next = joins ? queue_.erase(next) : std::next(next);
    }
    return batch;
  }
  return {};
}

void Batcher::run(Batch& batch) {
  const c10::InferenceMode no_gradients;
  int64_t rows = 0;
  for (const auto& waiting : batch) rows += waiting->rows();
  observer_(rows);
  try {
    if (batch.size() == 1) {
      batch[0]->result.set_value(run_(batch[0]->inputs));
      return;
    }
    Tensors joined;
    for (size_t input = 0; input < batch[0]->inputs.size(); ++input) {
      Tensors parts;
      for (const auto& waiting : batch) parts.push_back(waiting->inputs[input]);
      joined.push_back(at::cat(parts));
    }
    const Tensors outputs = run_(joined);
    int64_t first = 0;
    for (const auto& waiting : batch) {
      Tensors own;
      for (const at::Tensor& output : outputs) own.push_back(output.narrow(0, first, waiting->rows()));
      first += waiting->rows();
      waiting->result.set_value(std::move(own));
    }
  } catch (...) {
    if (batch.size() == 1) return batch[0]->result.set_exception(std::current_exception());
    // One of them may be the cause, and the others shall not suffer.
    for (const auto& waiting : batch) {
      Batch alone{waiting};
      run(alone);
    }
  }
}

}  // namespace server
