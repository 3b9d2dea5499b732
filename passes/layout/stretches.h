// Stretches of a block whose values are channels-last, and what their values would be in eager.
#pragma once

#include <unordered_map>
#include <vector>

#include "aliasing.h"
#include "anchor.h"
#include "stride_readers.h"

namespace ipex::passes {

// What every convolution in a stretch has in common: the tensor that it begins with, and the rank of its images. Without
// a tensor, nobody sees the strides of what is in the stretch.
struct Root {
  Value* value = nullptr;
  int64_t spatial_rank = 0;

  auto operator<=>(const Root&) const = default;
  explicit operator bool() const { return spatial_rank > 0; }
};

// A stretch grows from a convolution's input through ops that compute the same in any layout and hand it on.
class Stretches {
 public:
  Stretches(Block* block, const OverwrittenValues& overwritten, const StrideReaders& readers);

  Block* block() const { return block_; }
  // In the order of the graph.
  const std::vector<Value*>& members() const { return members_; }
  bool contain(const Node* node) const {
    return node->owningBlock() == block_ && !node->outputs().empty() && root_of(node->outputs().front());
  }
  // Of the stretch that the value is in. None where it is in none.
  Root root_of(const Value* value) const;

  // Whether nobody sees the strides of what the node gives.
  bool is_unseen(const Node* node) const { return node->outputs().size() == 1 && !readers_.see(node->output()); }
  // Whether the node computes element by element of a member and of tensors that are none, and nobody sees the strides.
  bool joins_tensors_from_outside(const Node* node) const;
  // Whether somebody writes to the value, so that a copy of it is something else.
  bool is_overwritten(const Value* value) const { return overwritten_.contain(value); }
  // Whether somebody sees the strides of the value through this reader.
  bool sees(const Use& reader) const { return readers_.see(reader); }

 private:
  Root root_of_results(Node* node) const;
  Root root_of_any(at::ArrayRef<Value*> values) const;
  Root common_root(Node* node) const;
  Root common_root(at::ArrayRef<Value*> values, bool unseen) const;
  Root root_of_convolution(const Anchor& anchor) const;

  Block* block_;
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
