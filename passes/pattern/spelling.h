// Spellings: several nodes that together compute one thing, written as IR text, and what takes their place.
//
//   const Spelling silu = Spelling("%s = aten::sigmoid(%x)\n"
//                                  "%y = aten::mul(%x, %s)")
//                             .declines_unless("x", is_floating, "its input may be an integer")
//                             .becomes("aten::silu", {"x"});
//
// Lines are those of pattern.h. A name that no line computes stands for any value, the same one wherever it occurs. The last line computes the result.
// The operands of aten::mul and of aten::add match in either order, so an alpha needs a condition. An op also matches
// its in-place form, where what that overwrites is fresh and nobody else reads it.
//
// What every spelling checks by itself, after the text has matched: its nodes are in one block, nobody else reads a
// value that will be gone, none of its inputs is such a value, and nothing that may write stands between its nodes, for
// all of them move to the last one.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pattern/pattern.h"

namespace ipex::passes {

// Values by their names in the text, and the nodes in the order of the graph.
struct Match {
  std::map<std::string, Value*> values;
  std::vector<Node*> nodes;

  Value* operator[](const std::string& name) const { return values.at(name); }
  Node* last() const { return nodes.back(); }
};

class Spelling {
 public:
  using Condition = std::function<bool(const Value*)>;
  // Inserts what takes the place of the match, at the insert point that is set, and returns the node.
  using Build = std::function<Node*(const Match&)>;

  explicit Spelling(const std::string& ir);

  // Where the condition does not hold, the match is declined for this reason; if that is empty, it is another spelling's business.
  Spelling declines_unless(const std::string& value, Condition condition, const std::string& reason) &&;
  // The op that takes its place, called with these values and then these constants.
  Spelling becomes(const std::string& op, const std::vector<std::string>& values,
                   const std::vector<torch::jit::IValue>& constants = {}) &&;
  // The same with a node that `build` makes. `what` goes into the report.
  Spelling becomes(const std::string& what, Build build) &&;
  // What takes its place computes the gradient as the pattern does: then values may be overwritten later on.
  Spelling keeps_gradient() &&;
  // A value that others may read too: it is the new node's output number `output`. The result is output 0.
  Spelling keep(const std::string& value, size_t output) &&;

  // Whether the text has a value of this name.
  bool mentions(const std::string& name) const;

  // Whether `last` computed the result of a match, and the match has been replaced.
  bool apply(Node* last, Context& context) const;
  // The kinds of node that may compute the result.
  std::vector<Symbol> kinds() const { return lines_.back().kinds(); }

 private:
  struct Requirement {
    std::string value;
    Condition condition;
    std::string reason;
  };

  const PatternLine* line_computing(const std::string& name) const;
  std::vector<Match> matches(const std::string& name, Value* value, const Match& so_far) const;
  std::optional<std::string> unmet_requirement(const Match& match) const;
  std::optional<std::string> reason_against(const Match& match) const;
  std::optional<std::string> reason_against_readers(const Match& match) const;
  std::optional<std::string> reason_against_writers(const Match& match) const;
  bool reads_itself(const Match& match) const;
  void replace(const Match& match) const;

  std::vector<PatternLine> lines_;
  std::vector<Requirement> requirements_;
  std::map<std::string, size_t> kept_;
  bool keeps_gradient_ = false;
  std::string what_;
  Build build_;
};

// Tries the spellings, in order, on every node. True when the graph changed.
bool rewrite_spellings(Context& context, const std::vector<Spelling>& spellings);

// Conditions.

// A constant, or a tensor constant of one element and no dimensions (so tracing records numbers), equal to `expected`
// as far as float32 can tell.
Spelling::Condition equals(double expected);

}  // namespace ipex::passes
