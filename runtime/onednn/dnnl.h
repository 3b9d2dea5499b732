// The only way to oneDNN's header: torch ships headers of its own oneDNN, and the wrong one must not be found first.
#pragma once

#include <dnnl.hpp>
#include <dnnl_threadpool.hpp>

static_assert(DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR == IPEX_ONEDNN_VERSION_MINOR,
              "dnnl.hpp is not the one ipex was configured with: check the include order");
