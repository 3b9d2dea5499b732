// Lives while oneDNN makes something: a primitive, or a reorder and what it writes.
//
// oneDNN freezes the number of pieces into what it makes, and keeps a promise in its own cache until that is made. A
// process that is forked in between would wait for the promise for good.
#pragma once

#include "onednn/engine.h"
#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {

struct Making {
  const ForkWaits fork_waits = {};
  const Pieces pieces{onednn_pieces()};
};

}  // namespace ipex::runtime
