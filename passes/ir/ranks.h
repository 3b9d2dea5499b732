// How many dimensions a tensor has.
#pragma once

#include <optional>
#include <unordered_map>

#include "pipeline/pass.h"

namespace ipex::passes {

struct Rank {
  // At least so many, whatever the graph is called with: a call in which the tensor has fewer has raised an error where the
  // value was computed.
  int64_t least = 0;
  // Whether it never has more.
  bool is_exact = false;

  std::optional<int64_t> exact() const { return is_exact ? std::optional(least) : std::nullopt; }
};

// Of the values of a graph; each is worked out once, so no value may be destroyed in between. Nobody looks further up than so many ops,
// for the sake of the stack.
class Ranks {
 public:
  explicit Ranks(int furthest = 500) : furthest_(furthest) {}

  Rank of(const Value* value) { return of(value, 0); }

 private:
  Rank of(const Value* value, int distance);
  Rank find(const Value* value, int distance);

  const int furthest_;
  std::unordered_map<const Value*, Rank> known_;
};

}  // namespace ipex::passes
