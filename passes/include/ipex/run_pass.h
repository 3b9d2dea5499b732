// One pass on one graph, both as text: for tests, and for seeing what a pass does.
#pragma once

#include <ipex/export.h>
#include <ipex/jit_optimize.h>
#include <ipex/report.h>

#include <string>

namespace ipex {

struct PassResult {
  std::string graph;
  bool changed;
  Report report;
};

// Parses `ir`, runs the pass of this name, and prints the graph. Tensor constants are written as `value=<Tensor>` with
// a complete type, and are filled with ones.
IPEX_API PassResult run_pass(const std::string& name, const std::string& ir, const Options& options = {});

}  // namespace ipex
