// The layers that may compute in 8 bits, and the tensors that they read. Observing and quantising walk the same graph and
// so find the same sites, under the same keys.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "anchor.h"

namespace ipex::passes {

struct Site {
  Anchor anchor;
  // One key for all sites of a block that read the same tensor.
  std::string input_key;
  // Of operands that are added and are made by other sites, for nobody else. None for operands that stay float.
  std::vector<std::optional<std::string>> operand_keys;
};

// In the order of the graph. Declines, with the reason, the layers that can't be quantised or were named in float_layers.
std::vector<Site> quantizable_sites(Context& context);

}  // namespace ipex::passes
