// The one place that runs parallel work: ours and oneDNN's.
#pragma once

#include <ATen/Parallel.h>  // at::divup
#include <c10/util/FunctionRef.h>

#include <algorithm>
#include <cstdint>

#include "threads/thread_count.h"

namespace ipex::runtime {

class Pool;

// Several for each thread: one that is held up leaves some to the others.
constexpr int64_t blocks_of_a_thread = 8;

// Calls run(block) for each of 0 to `blocks`, in thread_count() threads of the pool. An exception of one comes to the caller.
void run_blocks(int64_t blocks, c10::function_ref<void(int64_t block)> run);

// Calls `run(begin, end)` for ranges of at least `grain` that together are 0 to `count`. What it computes may not depend on
// where the cuts are.
template <typename Run>
void parallel_for(int64_t count, int64_t grain, const Run& run) {
  if (count <= 0) return;
  const int64_t most = count / std::max<int64_t>(1, grain);
  const int threads = most > 1 ? thread_count() : 1;
  if (threads == 1) return run(0, count);
  const int64_t blocks = std::min(most, threads * blocks_of_a_thread);
  run_blocks(blocks, [&](int64_t block) { run(count * block / blocks, count * (block + 1) / blocks); });
}

// While it lives, parallel work of this thread is that pool's, in place of the process's own.
class UsePool {
 public:
  explicit UsePool(Pool& pool);
  ~UsePool();
  UsePool(const UsePool&) = delete;
  UsePool& operator=(const UsePool&) = delete;

 private:
  Pool* const before_;
};

}  // namespace ipex::runtime
