// Where in the user's source a node comes from.
#pragma once

#include <cstdint>
#include <string>

#include "pipeline/pass.h"

namespace ipex::passes {

struct SourcePlace {
  std::string module;  // "layer1.0.relu"
  std::string file;    // "/home/me/model.py"
  int64_t line = 0;
};

// The innermost line that is neither torch's nor ours; torch's where there is no other. Fields stay empty where the graph, or the
// file that it was loaded from, does not tell.
SourcePlace source_place(const Node* node);

}  // namespace ipex::passes
