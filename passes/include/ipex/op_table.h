// What the optimiser knows of each op, as text: for tests, and for seeing what it knows.
#pragma once

#include <ipex/export.h>

#include <string>
#include <vector>

namespace ipex {

struct OpFacts {
  std::string name;      // "aten::add"
  std::string overload;  // "Tensor"
  std::string memory;    // of its result: "fresh", "view", "maybe_view", "itself", "no_tensor", "unknown"
  std::string writes;    // of its first input: "nothing", "elements", "shape"
  std::string left;      // why it is left to aten, where no pass has a better reason
};

IPEX_API std::vector<OpFacts> op_table();

}  // namespace ipex
