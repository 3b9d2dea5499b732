// Which values lie in memory that somebody may write: a node, or whoever gets it.
//
// A caller may write what a method returns, and what it stores in an attribute. A list is written where it is appended to.
// Found by going back from every such place to all that may share its memory, as the op table has it; what nothing is known
// of may share anything that it reads.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

class ExposedValues {
 public:
  // Of all methods together: what one stores in an attribute, another one reads. Calls are inlined; one that is left may
  // write what it is given.
  explicit ExposedValues(const std::vector<Graph*>& graphs);

  bool contain(const Value* value) const { return values_.count(value) > 0; }

  // Whether torch's alias analysis, too, sees all writes: none is a caller's, or goes by way of an op whose schema doesn't say
  // that its result may be its input.
  bool are_seen_by_torch(const Value* value) const { return unseen_.count(value) == 0; }

 private:
  enum class Seen : uint8_t { yes, no };

  void look_for_writes(Node* node);
  void add(const Value* value, Seen seen);
  void add_inputs(const Node* node, Seen seen);
  void add_sources(const Value* value, Seen seen);
  void add_sources_of_argument(const Value* value, Seen seen);

  std::unordered_map<Symbol, std::vector<const Value*>> stored_;  // by the name of the attribute
  std::unordered_set<const Value*> values_, unseen_;
  std::vector<std::pair<const Value*, Seen>> left_;
};

// The graph that a node runs beside its own, as prim::fork does. Null for others.
std::shared_ptr<Graph> graph_inside(const Node* node);

}  // namespace ipex::passes
