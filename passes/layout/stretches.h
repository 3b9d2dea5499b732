// Stretches of a graph whose values are channels-last, and what their values would be in eager.
#pragma once

#include <unordered_map>
#include <vector>

#include "anchor/anchor.h"
#include "ir/aliasing.h"
#include "ir/stride_readers.h"

namespace ipex::passes {

// What every convolution in a stretch has in common: the tensor that it begins with, and the rank of its images. Without
// a tensor, nobody sees the strides of what is in the stretch.
struct Root {
  Value* value = nullptr;
  int64_t spatial_rank = 0;

  auto operator<=>(const Root&) const = default;
  explicit operator bool() const { return spatial_rank > 0; }
};

// A stretch grows from a convolution's input through ops that compute the same in any layout and hand it on. One without a
// root goes on into blocks and out of them; any other ends where its block does.
class Stretches {
 public:
  Stretches(const std::shared_ptr<Graph>& graph, const OverwrittenValues& overwritten, const StrideReaders& readers);

  // In the order of the graph.
  const std::vector<Value*>& members() const { return members_; }
  // Of the stretch that the value is in, for a reader in this block. None where it is in none.
  Root root_of(const Value* value, const Block* reader) const;
  // The same for a reader next to it.
  Root root_of(const Value* value) const { return root_of(value, value->node()->owningBlock()); }
  // Whether this reader is of a stretch too, which takes the value in any layout.
  bool take(const Use& use) const;

  // Whether nobody sees the strides of what the node gives.
  bool is_unseen(const Node* node) const { return node->outputs().size() == 1 && !readers_.see(node->output()); }
  // Whether the node computes element by element of a member and of tensors that are none, and nobody sees the strides.
  bool joins_tensors_from_outside(const Node* node) const;
  // Whether somebody writes to the value, so that a copy of it is something else.
  bool is_overwritten(const Value* value) const { return overwritten_.contain(value); }
  // Whether somebody sees the strides of the value through this reader, or it takes no others.
  bool sees(const Use& reader) const;

 private:
  void grow(Block* block);
  void grow_loop(Node* loop);
  void add(Value* value, const Root& root);
  // Whether the value may be handed over the border of a block in another layout.
  bool may_pass(const Value* value) const;
  Root root_of_branches(const Node* node, size_t result) const;
  Root root_of_results(Node* node) const;
  Root root_of_any(Node* node) const;
  // Whether the node computes element by element of a member, which comes first, and of a tensor from outside that has its sizes: the
  // strides of its result are those of the first.
  bool follows_first(Node* node) const;
  Root common_root(Node* node) const;
  Root common_root(at::ArrayRef<Value*> values, const Block* reader, bool unseen) const;
  Root root_of_convolution(const Anchor& anchor) const;

  const OverwrittenValues& overwritten_;
  const StrideReaders& readers_;
  std::unordered_map<const Value*, Root> root_of_;
  std::vector<Value*> members_;
};

// A contiguous constant has any layout.
bool is_contiguous_constant(const Value* value);

// Whether the node cuts one piece out of a tensor. A piece is a member of the stretch; what a reader outside gets is cut
// from the tensor that it would get.
bool is_piece(const Node* node);

// The op that cuts a tensor into the slices that this node names.
Node* slicing_of(Node* node);

}  // namespace ipex::passes
