// Lives while oneDNN makes something: a primitive, or a reorder and what it writes.
//
// oneDNN freezes the number of pieces into what it makes, and keeps a promise in its own cache until that is made. A
// process that is forked in between would wait for the promise for good. So would whoever asks later, where making it ends with
// an exception: for want of memory, oneDNN's own code throws std::bad_alloc. Then its cache is emptied; we have our own.
#pragma once

#include <exception>

#include "onednn/engine.h"
#include "onednn/no_memory.h"
#include "threads/fork_safe_mutex.h"

namespace ipex::runtime {

class Making {
 public:
  Making() { forget_error_of_xbyak(); }
  ~Making() {
    if (std::uncaught_exceptions() > exceptions_before_) forget_primitives_of_onednn();
  }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;

 private:
  const int exceptions_before_ = std::uncaught_exceptions();
  const ForkWaits fork_waits_ = {};
  const Pieces pieces_{onednn_pieces()};
};

}  // namespace ipex::runtime
