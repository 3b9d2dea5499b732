// Takes nodes away that nobody reads.
#pragma once

#include "pipeline/pass.h"

namespace ipex::passes {

void remove_dead_code(const std::shared_ptr<Graph>& graph);

}  // namespace ipex::passes
