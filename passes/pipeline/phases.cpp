#include "pipeline/phases.h"

#include "pattern/fusion_rule.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

std::vector<Phase> made() {
  std::vector<Phase> all;
  const auto add = [&](Pass pass) { all.back().steps.back().passes.push_back(std::move(pass)); };
#define IPEX_PHASE(name) all.push_back({#name, {Step{}}});
#define IPEX_PASS(name) add(name());
#define IPEX_FUSION_RULES \
  for (const FusionRule& rule : fusion_rules()) add(rule.pass());
#define IPEX_FIXPOINT all.back().steps.push_back({{}, /*is_fixpoint=*/true});
#include "pipeline/phases.inc"
  return all;
}

}  // namespace

const std::vector<Phase>& phases() {
  static const std::vector<Phase> all = made();
  return all;
}

}  // namespace ipex::passes
