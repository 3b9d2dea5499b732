// The procedural passes, which phases.inc lists.
#pragma once

#include "pipeline/invariants.h"
#include "pipeline/pass.h"

namespace ipex::passes {

#define IPEX_PASS(name) Pass name();
#include "pipeline/phases.inc"

}  // namespace ipex::passes
