// What passes rely on, by name. A pass says which invariants it needs, which it establishes and which it breaks (Contract in
// pass.h). order.h checks the order of the passes against that, verifier.h each graph against the invariants.
#pragma once

#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

struct Invariant {
  const char* name;
  const char* meaning;  // for docs/reference/passes.md
  // Whether graphs have it before the first pass. That of a model that was optimised before may not.
  bool is_given;
  bool (*is_broken_by)(const Node*);
};

// Given: what some pass replaces still stands as the model has it.
extern const Invariant aten_layers, aten_names, eager_layouts, float_weights, full_precision, layers_apart,
    plain_arithmetic, plain_attention, plain_views, unobserved;

// Established: however the model wrote it.
extern const Invariant anchors_prepacked, integer_sizes, lists_are_values, no_dropout, one_linear_pattern,
    one_name_per_op, ops_lowered, roundings_read;

// A contract: needs(a, b) + establishes(c) + breaks(d). Where several passes establish an invariant, it holds when all of them
// have run.
template <typename... Invariants>
Contract needs(const Invariants&... all) {
  return {.needed = {&all...}};
}

template <typename... Invariants>
Contract establishes(const Invariants&... all) {
  return {.established = {&all...}};
}

template <typename... Invariants>
Contract breaks(const Invariants&... all) {
  return {.broken = {&all...}};
}

Contract operator+(Contract a, const Contract& b);

const std::vector<const Invariant*>& invariants();

struct Violation {
  const Invariant* invariant;
  Node* node;
};

// The first node that breaks one of these, and which. None: they hold.
std::optional<Violation> find_violation(Graph& graph, const std::vector<const Invariant*>& held);

}  // namespace ipex::passes
