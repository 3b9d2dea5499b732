// A tree of elementwise ops, and what shares values with it, as one op.
#pragma once

#include <unordered_set>
#include <vector>

#include "chains/elementwise_steps.h"

namespace ipex::passes {

class ElementwiseGroup {
 public:
  // All that ends in `root`, and that nobody outside reads in between.
  ElementwiseGroup(ElementwiseSteps& steps, Node* root);

  // Takes in who makes values that are read here, though others read them too: the op then gives several results.
  void share();

  // One op alone is, where its result is only summed, where it reads or makes numbers of 16 bits, where ours is the faster one and aten would not work in place, and where ours can give the 8-bit
  // numbers that are made of its result. In aten a mask costs a jump for each element, in place too.
  bool is_worth_it() const;

  // In the order of the graph.
  const std::vector<Node*>& nodes() const { return nodes_; }

  // The nodes are destroyed.
  void rewrite(Context& context);

 private:
  void grow();
  bool take_in(Node* producer);
  // A step that reads a result and could be in the group. Null where there is none.
  Node* reader_to_share() const;
  void add(Node* node);
  void sort();
  bool can_join(const Node* node) const;
  bool can_share(const Node* node) const;
  bool is_read_outside(const Node* node) const;
  bool is_good() const;
  // What lies before the last of the group and hangs on a result. It has to come after the op.
  std::vector<Node*> followers() const;
  bool reads_its_followers() const;
  std::vector<Node*> results() const;
  std::vector<Value*> values_read(const Node* node) const;
  std::vector<Value*> inputs() const;
  size_t inputs_with(const Node* node) const;

  ElementwiseSteps& steps_;
  Node* root_;
  std::vector<Node*> nodes_;
  std::unordered_set<const Node*> members_;
};

}  // namespace ipex::passes
