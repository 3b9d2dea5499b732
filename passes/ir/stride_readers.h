// Who sees the strides of a value: read from the op table, for a whole graph at once.
#pragma once

#include <unordered_set>

#include "pipeline/pass.h"

namespace ipex::passes {

class StrideReaders {
 public:
  explicit StrideReaders(const std::shared_ptr<Graph>& graph) { look_at(graph->block()); }

  // Whether the value with other strides could be told from outside, by the strides of a result or by an error, or
  // whether somebody overwrites what may be its memory. The values of the results don't depend on strides.
  bool see(const Value* value) const { return seen_.count(value) > 0; }

  // The same of one reader.
  bool see(const Use& use) const;

  // Whether the value, or what is computed from it element by element, is normalised over its last dimensions, for
  // which our kernels want it contiguous.
  bool normalize(const Value* value) const { return normalized_.count(value) > 0; }

 private:
  void look_at(const Block* block);
  void look_at_body(const Block* body);
  void look_at(const Value* value);
  bool normalizes(const Use& use) const;

  std::unordered_set<const Value*> seen_, normalized_;
};

}  // namespace ipex::passes
