// Many requests for one model at once: streams of a few threads each, on cores of their own. docs/how_to/streams.md
//
//   ipex::StreamPool pool(module, {.streams = 4, .threads_per_stream = 4});
//   std::future<c10::IValue> answer = pool.submit({image});
//
// All streams call the same module, so that its packed weights are in memory once. A stream is a thread, with others
// that share its work. Nothing about the threads of the caller changes: neither where they run, nor how many threads torch uses for them.
// Only the idle OpenMP team of the thread that makes the pool ends, where a stream has several threads: see "Other work" in
// docs/how_to/streams.md.
#pragma once

#include <ipex/export.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <vector>

namespace ipex {

struct StreamPoolOptions {
  // How many streams, and threads of each. 0: as many as the process may use cores, with one thread each; where one of the two
  // is given, the other takes the cores that there are.
  int64_t streams = 0, threads_per_stream = 0;
  // Each thread stays on a core of its own. Not where there are more threads than CPUs: then the system shares these better.
  bool pin = true;
  // Requests that wait; with more, submit waits. 0: 16 for each stream.
  int64_t max_queue = 0;
};

// A CPU as the system counts them. `core` is a number that the hyper-threads of one core share; `node` is that of its memory.
struct Cpu {
  int64_t number, core, node;
};

// The CPUs that the process may use.
IPEX_API std::vector<Cpu> usable_cpus();
// The CPUs' time that its control group leaves it, rounded up; usable_cpus().size() where there is no limit.
IPEX_API int64_t cpu_quota();

struct StreamPlan {
  int64_t streams, threads_per_stream;
  std::vector<std::vector<int64_t>> cpus;  // of each stream's threads; empty where they are not pinned
};

// Which stream runs where. Hyper-threads are used only where there are more threads than cores; a stream stays on one memory node
// where one has room for it.
IPEX_API StreamPlan plan_streams(const StreamPoolOptions& options, const std::vector<Cpu>& cpus, int64_t quota);

class IPEX_API StreamPool {
 public:
  explicit StreamPool(torch::jit::Module module, const StreamPoolOptions& options = {});
  // As close().
  ~StreamPool();
  StreamPool(const StreamPool&) = delete;
  StreamPool& operator=(const StreamPool&) = delete;

  // Calls forward, without gradients, on the next stream that is free. What it throws is in the future. From any thread.
  std::future<c10::IValue> submit(std::vector<c10::IValue> inputs);
  // Calls `done` on the thread of the stream, which waits for it: with the result, or with what forward threw. It may drop the pool.
  // What it throws is lost.
  using Done = std::function<void(c10::IValue result, const std::exception_ptr& error)>;
  void submit(std::vector<c10::IValue> inputs, Done done);

  // Waits for all requests, and ends the streams. Then submit throws. Called by `done`, it waits for none.
  void close();

  const StreamPlan& plan() const;

 private:
  class Streams;
  std::shared_ptr<Streams> streams_;
};

}  // namespace ipex
