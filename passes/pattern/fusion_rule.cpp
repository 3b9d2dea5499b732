#include "pattern/fusion_rule.h"

#include <ipex/post_ops.h>

#include <algorithm>

#include "anchor/anchor.h"
#include "ir/constants.h"
#include "ir/floating.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "ir/single_pixel.h"
#include "pipeline/invariants.h"

namespace ipex::passes {
namespace {

// "leaky_relu(%slope)" with the number that %slope is in this node. None when it is no constant number.
std::optional<std::string> fill_in(std::string post_op, const PatternLine& line, Node* node) {
  for (size_t at = post_op.find('%'); at != std::string::npos; at = post_op.find('%')) {
    const size_t end = post_op.find_first_of(",)", at);
    const bool is_negative = post_op[at - 1] == '-';
    const auto text = number_text(line.input(node, post_op.substr(at + 1, end - at - 1)), is_negative);
    if (!text) return std::nullopt;
    post_op.replace(at - is_negative, end - at + is_negative, *text);
  }
  return post_op;
}

// Far fewer than oneDNN's limit, which counts steps, of which a post-op may have three.
constexpr size_t most_post_ops = 10;

}  // namespace

FusionRule FusionRule::match(const std::string& ir) && {
  forms_.push_back({PatternLine(ir), {}, "", {}});
  return std::move(*this);
}

FusionRule FusionRule::only_if(const std::string& value, Condition condition) && {
  return std::move(*this).declines_unless(value, condition, "");
}

FusionRule FusionRule::declines_unless(const std::string& value, Condition condition, const std::string& reason) && {
  forms_.back().requirements.push_back({value, condition, reason});
  return std::move(*this);
}

FusionRule FusionRule::append(const std::string& post_op, std::vector<std::string> operands) && {
  for (size_t at = post_op.find('%'); at != std::string::npos; at = post_op.find('%', at + 1)) {
    const auto is_there = [](const Value* number) { return !is_none(number); };
    forms_.back().requirements.push_back(
        {post_op.substr(at + 1, post_op.find_first_of(",)", at) - at - 1), is_there, ""});
  }
  forms_.back().post_op = post_op;
  forms_.back().operands = std::move(operands);
  return std::move(*this);
}

Pass FusionRule::pass() const {
  return {name_, [this](Context& context) { return run(context); },
          needs(anchors_prepacked, full_precision, layers_apart, plain_arithmetic)};
}

bool FusionRule::run(Context& context) const {
  std::unordered_map<Symbol, std::vector<const Form*>> forms_of;
  for (const Form& form : forms_) {
    for (const Symbol kind : form.line.kinds()) forms_of[kind].push_back(&form);
  }
  bool changed = false;
  for_each_node(context.graph->block(), [&](Node* node) {
    const auto forms = forms_of.find(node->kind());
    if (forms == forms_of.end()) return;
    changed |= std::any_of(forms->second.begin(), forms->second.end(),
                           [&](const Form* form) { return apply(*form, node, context); });
  });
  return changed;
}

std::optional<NodeAsPostOp> FusionRule::as_post_op(Node* node) const {
  for (const Form& form : forms_) {
    const PatternLine& line = form.line;
    if (!line.fits(node) || !is_tensor(line.input(node, "y"))) continue;
    const bool meets_all = std::all_of(form.requirements.begin(), form.requirements.end(),
                                       [&](const auto& r) { return r.condition(line.input(node, r.value)); });
    const auto post_op = meets_all ? fill_in(form.post_op, line, node) : std::nullopt;
    if (!post_op) continue;
    NodeAsPostOp found{*post_op, line.input(node, "y"), {}};
    for (const std::string& operand : form.operands) found.operands.push_back(line.input(node, operand));
    return found;
  }
  return std::nullopt;
}

bool FusionRule::apply(const Form& form, Node* node, Context& context) {
  const PatternLine& line = form.line;
  if (!line.fits(node)) return false;
  const Value* y = line.input(node, "y");
  Value* operand = form.operands.empty() ? nullptr : line.input(node, form.operands[0]);
  const auto anchor = Anchor::taking_post_ops(y);
  if (!anchor || anchor->run()->owningBlock() != node->owningBlock()) return false;
  if (operand && !anchor->takes_operands()) return false;
  const auto failed = std::find_if(form.requirements.begin(), form.requirements.end(),
                                   [&](const auto& r) { return !r.condition(line.input(node, r.value)); });
  const bool has_failed = failed != form.requirements.end();
  if (has_failed && failed->reason.empty()) return false;

  const auto post_op = fill_in(form.post_op, line, node);
  const auto reason = [&]() -> std::optional<std::string> {
    if (y->uses().size() != 1) return "another reader needs the value before it";
    if (has_failed) return failed->reason;
    if (op_of(node)->memory == Memory::itself && !is_floating(y)) {
      return "in place it keeps a dtype that may be an integer's";
    }
    if (!post_op) return "its numbers are not constants, or NaN";
    if (anchor->post_ops().size() == most_post_ops) return "the packed op holds no more post-ops";
    if (operand && written_between(anchor->run(), node)) return "something is overwritten in between";
    if (operand && is_spread_over(*anchor, operand))
      return "the packed op computes one pixel, which is spread over an image";
    return std::nullopt;
  }();
  if (reason) {
    context.declined(node, *reason);
    return false;
  }
  context.merged(node, "fused into ", anchor->run());
  if (operand) {
    // The operand may be computed only now. Without one the post-op runs earlier than before: nobody else sees %y.
    anchor->run()->moveBefore(node);
  }
  anchor->append_post_op(*post_op, operand);
  anchor->take_over(node);
  return true;
}

FusionRule with_activations(FusionRule rule, bool are_packed) {
  for (const ActivationPattern& activation : activation_patterns()) {
    if (activation.is_packed != are_packed) continue;
    rule = std::move(rule).match("%z = " + activation.pattern).append(activation.post_op);
  }
  return rule;
}

bool is_number(const Value* value) { return number(value).has_value(); }

bool is_tensor(const Value* value) { return has_tensor_type(value) && !is_number(value); }

bool is_none(const Value* value) { return value->mustBeNone(); }

bool is_one(const Value* value) { return number(value) == 1; }

namespace {
std::vector<FusionRule>& registry() {
  static std::vector<FusionRule> rules;
  return rules;
}
}  // namespace

const std::vector<FusionRule>& fusion_rules() { return registry(); }

bool register_fusion(FusionRule rule) {
  auto& rules = registry();
  const auto by_name = [](const FusionRule& a, const FusionRule& b) { return a.name() < b.name(); };
  rules.insert(std::upper_bound(rules.begin(), rules.end(), rule, by_name), std::move(rule));
  return true;
}

}  // namespace ipex::passes
