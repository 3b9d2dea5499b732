// oneDNN's engine, and the stream of each thread.
#pragma once

#include "onednn/dnnl.h"

namespace ipex::runtime {

const dnnl::engine& engine();
dnnl::stream& stream();

}  // namespace ipex::runtime
