// Which ops can be steps of ipex::elementwise.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "pattern/fusion_rule.h"

namespace ipex::passes {

struct ElementwiseStep {
  NodeAsPostOp op;
  int writes_before;  // how many nodes of its block before it may write
  int stretch;        // ops of one stretch of their block may change places where none reads the other
  bool gives_bools;
};

// Those of a graph before it is changed. The rules of the fusions say which op is which post-op, and a rule of our own what no
// packed op takes. Left out is what is likely to be of integers: arithmetic on sizes is traced as tensors too.
class ElementwiseSteps {
 public:
  explicit ElementwiseSteps(const std::shared_ptr<Graph>& graph);

  // Null where the node can't be one.
  const ElementwiseStep* of(const Node* node) const;

  // The node is about to go. Steps that read its result read `replacement`, as their nodes do by now.
  void remove(const Node* node, Value* replacement);

 private:
  void look_at(Block* block);
  std::optional<NodeAsPostOp> as_step(Node* node);
  // Whether it is likely that the value is of a floating dtype. Integers are right too, as aten computes them, but not fast.
  bool floats(const Value* value) const;

  std::unordered_map<const Node*, ElementwiseStep> steps_;
  std::unordered_set<const Value*> floating_, bools_;
};

}  // namespace ipex::passes
