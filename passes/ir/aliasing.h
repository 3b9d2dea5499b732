// Who writes what, and who shares memory with whom: read from the op table and, for ops without a row, from schemas.
//
// TorchScript's AliasDb is not enough: some ops may return their input though their schema says nothing of it (type_as,
// einsum, atleast_2d, sum_to_size, ..), and a write to such a result is a write to the input. So a pass trusts AliasDb
// only about values that are fresh. docs/decisions/passes.md
#pragma once

#include <unordered_set>
#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

// Whether `value` lies in memory that its op has made for it.
bool is_fresh(const Value* value);

// Whether it lies in memory that is fresh, as views of a fresh value do.
bool is_in_fresh_memory(const Value* value);

// Whether running the node may write to memory that others read. Blocks inside it count.
bool may_write(const Node* node);

// Whether this reader overwrites the tensor, or hands it, or a view of it, to somebody in the graph who does.
bool overwrites(const Use& use);

// The same, but for writes that are over when `node` runs.
bool overwrites_after(const Use& use, const Node* node);

// Whether the memory of the value is overwritten by anything but what is over when `node` runs. Memory that is not fresh may be.
bool is_overwritten_after(const Value* value, const Node* node);

// Whether running the node may write to memory in which one of the values lies. A write to memory that the graph has
// made reaches only what may share it.
bool may_write_to(const Node* node, const std::vector<Value*>& values);

// Whether anything in the graph overwrites memory that is not fresh.
bool writes_to_shared_memory(const std::shared_ptr<Graph>& graph);

// The values that lie in memory which the graph overwrites: all of them where writes_to_shared_memory. Else found by going from
// the memory that is written to all that may share it. (torch's AliasDb believes of a value that was ever in a
// list that it may be any tensor from outside, so that one write in a head is a write to the image.)
class OverwrittenValues {
 public:
  explicit OverwrittenValues(const std::shared_ptr<Graph>& graph);

  // By one node alone, which writes to memory that is fresh.
  explicit OverwrittenValues(const Node* write);

  bool contain(const Value* value) const { return everything_ || values_.count(value) > 0; }

 private:
  void add(const Value* value);

  bool everything_ = false;
  std::unordered_set<const Value*> values_;
};

// Whether anything in the graph changes the sizes or strides of a tensor in place: with out= too, where the tensor given
// has others than the result.
bool reshapes_in_place(const std::shared_ptr<Graph>& graph);

// Whether it matters that `value` is a tensor of its own and not another one with the same elements in the same memory:
// somebody may change its shape in place, return it, or keep it.
bool must_be_a_tensor_of_its_own(const Value* value);

}  // namespace ipex::passes
