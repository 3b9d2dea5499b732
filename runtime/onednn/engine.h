// oneDNN's engine, the stream of each thread, which runs on the pool, and how many pieces oneDNN cuts work into.
#pragma once

#include "onednn/dnnl.h"

namespace ipex::runtime {

const dnnl::engine& engine();
dnnl::stream& stream();
int onednn_pieces();

// While it lives, oneDNN cuts what this thread makes or executes into so many.
class Pieces {
 public:
  explicit Pieces(int count);
  ~Pieces();
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

 private:
  const int before_;
};

}  // namespace ipex::runtime
