#include "ir/escape.h"

#include <unordered_set>
#include <vector>

#include "ir/flow.h"

namespace ipex::passes {

bool Escapes::contain(const Value* value) {
  std::unordered_set<const Value*> seen;
  std::vector<const Value*> left{value};
  while (!left.empty()) {
    const Value* next = left.back();
    left.pop_back();
    const auto known = known_.find(next);
    if (known != known_.end() && known->second) return known_[value] = true;
    if (known != known_.end() || !seen.insert(next).second) continue;
    for (const Use& use : next->uses()) {
      if (copies_ && copies_(use.user)) continue;
      const Flow flow = flow_of(use);
      if (flow.escapes()) return known_[value] = true;
      left.insert(left.end(), flow.names.begin(), flow.names.end());
    }
  }
  for (const Value* one : seen) known_[one] = false;
  return false;
}

}  // namespace ipex::passes
