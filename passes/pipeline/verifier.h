// Checks a graph after every pass: for tests, and to find the pass that went wrong.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "pipeline/invariants.h"

namespace ipex::passes {

// Throws with the name of the pass, the invariant and the node where a graph isn't well formed, a node doesn't fit the schema of
// its op, or an invariant is broken that passes before it have established, or that was given.
class Verifier {
 public:
  // Before the first pass. Does nothing without IPEX_VERIFY=1. Where passes are left out, what they establish isn't asked for.
  Verifier(std::shared_ptr<Graph> graph, bool all_passes_run);

  // Right after the pass has changed something: torch's own clean-up, which comes next, can't say whose node it doesn't know.
  void check_nodes(const Pass& pass) const;

  void check_invariants(const Pass& pass, bool changed);

 private:
  void check(const std::string& pass, const std::vector<const Invariant*>& held) const;

  std::shared_ptr<Graph> graph_;
  bool all_passes_run_;
  std::vector<const Invariant*> held_;
  std::unordered_set<std::string> ran_;
};

}  // namespace ipex::passes
