// Fusions as data: a line of IR, the conditions under which it may go, and the post-op that takes its place.
//
// A rule in fusions/ names the packed op's result %y in its pattern:
//
//   const FusionRule rule = FusionRule("fuse_activation").match("%z = aten::relu_?(%y)").append("relu");
//   IPEX_REGISTER_FUSION(rule);
//
// "relu_?" stands for relu and for relu_: in place, on a value that nobody else reads, is the same thing.
//
// What every rule checks by itself: %y comes from a packed op in the same block and has no other reader, numbers that
// the post-op keeps are constants, and a packed op that has to wait for an operand may be moved that far (nobody writes
// its input in between).
#pragma once

#include <string>
#include <vector>

#include "pass.h"

namespace ipex::passes {

class FusionRule {
 public:
  // Of the value that a name in the pattern stands for.
  using Condition = bool (*)(const Value*);

  explicit FusionRule(std::string name) : name_(std::move(name)) {}

  // Starts a spelling of the fusion; the calls up to the next `match` belong to it.
  FusionRule match(const std::string& ir) &&;
  // The spelling is another one, and not this rule's business, where the condition does not hold.
  FusionRule where(const std::string& value, Condition condition) &&;
  // The spelling is declined, for this reason, where the condition does not hold.
  FusionRule when(const std::string& value, Condition condition, const std::string& reason_if_not) &&;
  // The post-op to append, as "leaky_relu(%slope)", where "-%slope" would be its negative, and the name of the value
  // that is its operand.
  FusionRule append(const std::string& post_op, const std::string& operand = "") &&;

  const std::string& name() const { return name_; }
  bool run(const std::shared_ptr<Graph>& graph, Recorder& recorder) const;

 private:
  struct Requirement {
    std::string value;
    Condition condition;
    std::string reason_if_not;  // empty: not this spelling
  };
  struct Spelling {
    std::string ir;
    std::vector<Requirement> requirements;
    std::string post_op;
    std::string operand;
  };

  bool apply(const Spelling& spelling, const std::shared_ptr<Graph>& graph, Recorder& recorder) const;

  std::string name_;
  std::vector<Spelling> spellings_;
};

// Conditions for FusionRule.
bool is_number(const Value* value);  // a constant one, or a constant tensor without dimensions: to a packed op the same
bool is_tensor(const Value* value);  // any other
bool is_none(const Value* value);
bool is_one(const Value* value);

// The registered rules, ordered by name.
const std::vector<FusionRule>& fusion_rules();
bool register_fusion(FusionRule rule);

#define IPEX_REGISTER_FUSION(rule) [[maybe_unused]] const bool registered = register_fusion(rule)

}  // namespace ipex::passes
