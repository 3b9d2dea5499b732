// Reshapes, permutations and the like, one after the other, as the data that ipex::rearrange and ipex::row_moves_prepack take.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

struct RearrangingStep {
  // An int, or a list of ints; or None, which stands for `if_none`.
  struct Argument {
    Value* value;
    int64_t if_none = 0;
  };

  Node* node;
  std::string name;
  std::vector<Argument> arguments;

  bool may_copy() const;
};

// What the node does to the dimensions of its first input: one of the steps that ipex::rearrange joins. None where it is no step, or
// its numbers are not known one by one.
std::optional<RearrangingStep> read_step(Node* node);

// The same, or a roll, a border of zeros, or a piece.
std::optional<RearrangingStep> read_step_of_rows(Node* node);

struct StepsAsData {
  Value *names, *counts, *numbers;
};

// Inserts constants and a list at the insert point that is set.
StepsAsData as_data(const std::vector<RearrangingStep>& steps);

}  // namespace ipex::passes
