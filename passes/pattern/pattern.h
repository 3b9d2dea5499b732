// A line of a pattern, as FusionRule and Spelling have it:
//
//   %z = aten::add_?(%y, %other, %alpha)
//
// Of a FusionRule an argument may be a constant, None or a text: "aten::gelu_?(%y, 'tanh')".
//
// An op is named as in ops/op_table.h: "aten::add" is every overload that has a row, "aten::max.other" that one, and a
// form with `out=` never. "add_?" stands for add and for add_. A line fits a node of this op with as many inputs and
// outputs as the line has.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ops/op_table.h"
#include "pipeline/pass.h"

namespace ipex::passes {

class PatternLine {
 public:
  explicit PatternLine(const std::string& text);

  bool fits(const Node* node) const;
  // The kinds of node that it may fit.
  std::vector<Symbol> kinds() const;
  Symbol kind() const { return op_.kind(); }
  // The input of a node that fits, by its name in the line.
  Value* input(Node* node, const std::string& name) const;

  // Lets the line fit the in-place form as well, where there is one.
  void accept_in_place();

  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }

 private:
  OpName op_;
  std::optional<OpName> in_place_;
  std::vector<std::string> inputs_, outputs_;
  std::map<size_t, std::string> constants_;  // of inputs
};

}  // namespace ipex::passes
