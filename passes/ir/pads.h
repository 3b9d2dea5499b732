// Ops that pad, by all the names that aten has for them.
#pragma once

#include <vector>

#include "ir/graph_walk.h"

namespace ipex::passes {

// Found before any is rewritten: a rewrite destroys nodes that follow.
inline std::vector<Node*> find_pads(const std::shared_ptr<Graph>& graph) {
  std::vector<Node*> pads;
  for (const char* kind : {"aten::constant_pad_nd", "aten::pad"}) {
    for_each(graph, kind, [&](Node* pad) { pads.push_back(pad); });
  }
  return pads;
}

}  // namespace ipex::passes
