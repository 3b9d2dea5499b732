#include "pipeline/order.h"

#include <algorithm>

#include "pipeline/invariants.h"

namespace ipex::passes {
namespace {

bool has(const std::vector<const Invariant*>& list, const Invariant* one) {
  return std::find(list.begin(), list.end(), one) != list.end();
}

// Whether with `second` first, one of the two would find what it needs not there yet, or broken.
bool must_precede(const Contract& first, const Contract& second) {
  const auto& needs = second.needed;
  return std::any_of(needs.begin(), needs.end(), [&](const Invariant* one) { return has(first.established, one); }) ||
         std::any_of(first.needed.begin(), first.needed.end(),
                     [&](const Invariant* one) { return has(second.broken, one); });
}

}  // namespace

std::optional<std::string> reason_against_order(const std::vector<Pass>& passes) {
  for (auto pass = passes.begin(); pass != passes.end(); ++pass) {
    for (const Invariant* needed : pass->contract.needed) {
      const auto establishes = [&](const Pass& other) { return has(other.contract.established, needed); };
      const auto breaks = [&](const Pass& other) { return has(other.contract.broken, needed); };
      const std::string what = pass->name + " needs " + needed->name + ", which ";
      if (!needed->is_given && std::none_of(passes.begin(), pass, establishes)) return what + "no pass before it gives";
      const auto late = std::find_if(pass + 1, passes.end(), establishes);
      if (late != passes.end()) return what + late->name + " establishes after it";
      const auto breaking = std::find_if(passes.begin(), pass, breaks);
      if (breaking != pass) return what + breaking->name + " breaks before it";
    }
  }
  return std::nullopt;
}

std::vector<Pass> shuffled(std::vector<Pass> passes, std::mt19937& dice) {
  std::vector<Pass> drawn;
  while (!passes.empty()) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < passes.size(); ++i) {
      const bool waits = std::any_of(passes.begin(), passes.end(), [&](const Pass& other) {
        return &other != &passes[i] && must_precede(other.contract, passes[i].contract);
      });
      if (!waits) ready.push_back(i);
    }
    TORCH_INTERNAL_ASSERT(!ready.empty(), "passes wait for one another: ", passes.front().name);
    const auto next = passes.begin() + static_cast<std::ptrdiff_t>(ready[dice() % ready.size()]);
    drawn.push_back(std::move(*next));
    passes.erase(next);
  }
  return drawn;
}

}  // namespace ipex::passes
