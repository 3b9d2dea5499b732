// Lives while oneDNN makes something: a primitive, or a reorder and what it writes.
//
// oneDNN freezes the number of threads into what it makes, and keeps a promise in its own cache until that is made. A
// process that is forked in between would wait for the promise for good.
#pragma once

#include "threads/fork_safe_mutex.h"
#include "threads/thread_count.h"

namespace ipex::runtime {

struct Making {
  const ForkWaits fork_waits;
  const FrozenThreadCount threads;
};

}  // namespace ipex::runtime
