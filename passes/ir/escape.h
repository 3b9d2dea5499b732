// What is still reachable when the call is over: returned, stored in an attribute, put into a list or a dict.
#pragma once

#include <functional>
#include <unordered_map>

#include "pipeline/pass.h"

namespace ipex::passes {

// Asked of a graph that doesn't change in between.
class Escapes {
 public:
  // `copies` says of nodes whether their result is a copy, where more is known of them than the op table says.
  explicit Escapes(std::function<bool(const Node*)> copies = {}) : copies_(std::move(copies)) {}

  // Whether somebody may have the memory of the value after the call, or get it at a place that the graph does not show.
  bool contain(const Value* value);

 private:
  std::function<bool(const Node*)> copies_;
  std::unordered_map<const Value*, bool> known_;
};

}  // namespace ipex::passes
