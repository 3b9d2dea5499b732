// What the optimiser knows of its passes, as text: for tests, and for docs/reference/passes.md.
#pragma once

#include <ipex/export.h>

#include <string>
#include <utility>
#include <vector>

namespace ipex {

struct PassFacts {
  std::string phase;
  std::string name;
  // Names of invariants.
  std::vector<std::string> needs, establishes, breaks;
};

// A row for every place of a pass, in the order in which they run.
IPEX_API std::vector<PassFacts> pass_table();

struct InvariantFacts {
  std::string name, meaning;
  bool is_given;  // whether graphs have it before the first pass
};

IPEX_API std::vector<InvariantFacts> invariant_table();

// The names of invariants that a graph, given as text, breaks, each with the first node that does.
IPEX_API std::vector<std::pair<std::string, std::string>> broken_invariants(const std::string& ir);

// Why these passes can't run in this order. Empty where they can.
IPEX_API std::string reason_against_order(const std::vector<std::string>& passes);

}  // namespace ipex
