#include <ipex/pass_table.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <algorithm>

#include "pipeline/invariants.h"
#include "pipeline/order.h"
#include "pipeline/phases.h"
#include "pipeline/pipeline.h"

namespace ipex {
namespace {

std::vector<std::string> names_of(const std::vector<const passes::Invariant*>& invariants) {
  std::vector<std::string> names;
  for (const passes::Invariant* one : invariants) names.emplace_back(one->name);
  return names;
}

}  // namespace

std::vector<PassFacts> pass_table() {
  std::vector<PassFacts> rows;
  for (const passes::Phase& phase : passes::phases()) {
    for (const passes::Step& step : phase.steps) {
      for (const passes::Pass& pass : step.passes) {
        const auto& [needed, established, broken] = pass.contract;
        rows.push_back({phase.name, pass.name, names_of(needed), names_of(established), names_of(broken)});
      }
    }
  }
  return rows;
}

std::vector<InvariantFacts> invariant_table() {
  std::vector<InvariantFacts> rows;
  for (const passes::Invariant* one : passes::invariants()) rows.push_back({one->name, one->meaning, one->is_given});
  return rows;
}

std::vector<std::pair<std::string, std::string>> broken_invariants(const std::string& ir) {
  const auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(ir, graph.get(), /*parse_tensor_constants=*/true);
  std::vector<std::pair<std::string, std::string>> broken;
  for (const passes::Invariant* one : passes::invariants()) {
    const auto found = passes::find_violation(*graph, {one});
    if (found) broken.emplace_back(one->name, passes::describe(found->node));
  }
  return broken;
}

std::string reason_against_order(const std::vector<std::string>& names) {
  std::vector<passes::Pass> order;
  for (const std::string& name : names) {
    const auto& all = passes::pipeline();
    const auto pass = std::find_if(all.begin(), all.end(), [&](const passes::Pass& p) { return p.name == name; });
    TORCH_CHECK(pass != all.end(), "ipex.reason_against_order: expected names of passes, got '", name, "'.");
    order.push_back(*pass);
  }
  return passes::reason_against_order(order).value_or("");
}

}  // namespace ipex
