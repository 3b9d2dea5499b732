// The phases of the optimiser, in the order of phases.inc. Each is a folder.
#pragma once

#include <string>
#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

// Inside a step, contracts say which pass has to come before which. Any order that they allow gives right values
// (IPEX_SHUFFLE); the one that is written there fuses most.
struct Step {
  std::vector<Pass> passes;
  // Whether the passes take turns until none of them finds anything more to do.
  bool is_fixpoint = false;
};

struct Phase {
  std::string name;
  std::vector<Step> steps;
};

const std::vector<Phase>& phases();

}  // namespace ipex::passes
