// Whether passes may stand in an order: read from their contracts.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

// Why these passes can't run in this order. Empty where they can: what each one needs is given or established before it, and
// no pass before it breaks that.
std::optional<std::string> reason_against_order(const std::vector<Pass>& passes);

// The same passes in an order drawn from those that their contracts allow.
std::vector<Pass> shuffled(std::vector<Pass> passes, std::mt19937& dice);

}  // namespace ipex::passes
