// Where the memory of a value goes: the one walk that all questions about sharing, writes and escape are asked of.
#pragma once

#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

// What becomes of a value's memory by one use.
struct Flow {
  std::vector<Value*>
      names;  // values that may lie in it: results, what a branch or a loop goes on with, attributes read
  bool is_returned = false;  // the caller of the graph gets it
  bool is_stored = false;    // an attribute keeps it, and who reads that is in `names`
  bool is_lost = false;      // a list or a dict keeps it, or an op of which nothing is known: it may turn up anywhere

  // Whether somebody may read or write it when the call is over, or at a place that the graph does not show.
  bool escapes() const { return is_returned || is_stored || is_lost; }
};

Flow flow_of(const Use& use);

// Whether it can be a tensor, or hold one.
bool may_hold_tensors(const c10::TypePtr& type);

}  // namespace ipex::passes
