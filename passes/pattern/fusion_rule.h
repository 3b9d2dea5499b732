// Fusions as data: a line of IR, the conditions under which it may go, and the post-op that takes its place.
//
// A rule in epilogue/ names the packed op's result %y in its pattern (pattern.h):
//
//   const FusionRule rule = FusionRule("fuse_relu").match("%z = aten::relu_?(%y)").append("relu");
//   IPEX_REGISTER_FUSION(rule);
//
// "relu_?" stands for relu and for relu_: in place, on a value that nobody else reads, is the same thing.
//
// What every rule checks by itself: %y comes from a packed op in the same block and has no other reader, numbers that
// the post-op keeps are constants, and a packed op that has to wait for an operand may be moved that far (nobody writes
// its input in between).
//
// Rules are independent: a node fits one rule at most, so that their order is no matter (test_fusion_rule.py).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pattern/pattern.h"

namespace ipex::passes {

// A node as a post-op on one of its inputs.
struct NodeAsPostOp {
  std::string post_op;
  Value* y;
  std::vector<Value*> operands;
};

class FusionRule {
 public:
  // Of the value that a name in the pattern stands for.
  using Condition = bool (*)(const Value*);

  explicit FusionRule(std::string name) : name_(std::move(name)) {}

  // Starts a form of the fusion; the calls up to the next `match` belong to it.
  FusionRule match(const std::string& ir) &&;
  // Where the condition does not hold, the node is another form's business.
  FusionRule only_if(const std::string& value, Condition condition) &&;
  // Where the condition does not hold, the node is declined for this reason.
  FusionRule declines_unless(const std::string& value, Condition condition, const std::string& reason) &&;
  // The post-op to append, as "leaky_relu(%slope)", where "-%slope" would be its negative, and the names of the values
  // that are its operands. A packed op takes one at most. Where a number is None, the node is another form's business.
  FusionRule append(const std::string& post_op, std::vector<std::string> operands = {}) &&;

  const std::string& name() const { return name_; }
  // The rule has to live as long as the pass.
  Pass pass() const;

  // What the node would be to a packed op whose result it reads, whether there is one or not.
  std::optional<NodeAsPostOp> as_post_op(Node* node) const;

 private:
  struct Requirement {
    std::string value;
    Condition condition;
    std::string reason;  // empty: not this form
  };
  struct Form {
    PatternLine line;
    std::vector<Requirement> requirements;
    std::string post_op;
    std::vector<std::string> operands;
  };

  bool run(Context& context) const;
  // Whether the node was fused.
  static bool apply(const Form& form, Node* node, Context& context);

  std::string name_;
  std::vector<Form> forms_;
};

// With a form for each activation of runtime/packed/post_ops.inc: those that packed ops take, or those of ipex::elementwise alone.
FusionRule with_activations(FusionRule rule, bool are_packed);

// Conditions.
bool is_number(const Value* value);  // a constant one, or a constant tensor without dimensions: to a packed op the same
bool is_tensor(const Value* value);  // any other
bool is_none(const Value* value);
bool is_one(const Value* value);

// The registered rules, in an order that is the same in every build.
const std::vector<FusionRule>& fusion_rules();
bool register_fusion(FusionRule rule);

#define IPEX_REGISTER_FUSION(rule) [[maybe_unused]] const bool registered = register_fusion(rule)

}  // namespace ipex::passes
