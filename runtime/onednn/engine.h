// oneDNN's engine, the stream of each thread, which runs on the pool, and how many pieces oneDNN cuts work into.
#pragma once

#include "onednn/dnnl.h"

namespace ipex::runtime {

const dnnl::engine& engine();
dnnl::stream& stream();
int onednn_pieces();

}  // namespace ipex::runtime
