#include "pipeline/verifier.h"

#include <algorithm>
#include <cstdlib>

#include "ir/graph_walk.h"
#include "pipeline/pipeline.h"

namespace ipex::passes {
namespace {

bool is_asked_for() {
  const char* asked = std::getenv("IPEX_VERIFY");
  return asked && std::string(asked) == "1";
}

// torch looks for a schema of the op that fits the inputs.
bool fits_no_schema(const Node* node) { return !node->kind().is_prim() && !node->maybeOperator(); }

const std::vector<std::string>& passes_that_establish(const Invariant* invariant) {
  static const auto all = [] {
    std::unordered_map<const Invariant*, std::vector<std::string>> passes;
    for (const Pass& pass : pipeline()) {
      for (const Invariant* one : pass.contract.established) passes[one].push_back(pass.name);
    }
    return passes;
  }();
  return all.at(invariant);
}

}  // namespace

Verifier::Verifier(std::shared_ptr<Graph> graph, bool all_passes_run)
    : graph_(is_asked_for() ? std::move(graph) : nullptr), all_passes_run_(all_passes_run) {
  if (!graph_) return;
  for (const Invariant* one : invariants()) {
    if (one->is_given && !find_violation(*graph_, {one})) held_.push_back(one);
  }
}

void Verifier::check_nodes(const Pass& pass) const {
  if (!graph_) return;
  try {
    graph_->lint();
  } catch (const std::exception& error) {
    TORCH_CHECK(false, "ipex: after ", pass.name, " the graph is not well formed: ", error.what());
  }
  for_each_node(graph_->block(), [&](const Node* node) {
    TORCH_CHECK(!fits_no_schema(node), "ipex: after ", pass.name, " a node fits no schema of its op: ", *node);
  });
}

void Verifier::check_invariants(const Pass& pass, bool changed) {
  if (!graph_) return;
  ran_.insert(pass.name);
  for (const Invariant* one : pass.contract.broken) std::erase(held_, one);
  std::vector<const Invariant*> established;
  for (const Invariant* one : pass.contract.established) {
    const auto& others = passes_that_establish(one);
    const bool is_complete =
        std::all_of(others.begin(), others.end(), [&](const auto& name) { return ran_.count(name); });
    if (is_complete && all_passes_run_) established.push_back(one);
  }
  if (changed) {
    held_.insert(held_.end(), established.begin(), established.end());
    check(pass.name, held_);
  } else if (!established.empty()) {
    check(pass.name, established);
    held_.insert(held_.end(), established.begin(), established.end());
  }
}

void Verifier::check(const std::string& pass, const std::vector<const Invariant*>& held) const {
  const auto found = find_violation(*graph_, held);
  TORCH_CHECK(!found, "ipex: ", pass, " leaves ", describe(found->node), ", which breaks ", found->invariant->name,
              ": ", found->invariant->meaning);
}

}  // namespace ipex::passes
