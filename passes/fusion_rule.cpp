#include "fusion_rule.h"

#include <algorithm>

#include "aliasing.h"
#include "anchor.h"
#include "constants.h"
#include "floating.h"
#include "graph_walk.h"

namespace ipex::passes {
namespace {

// "%z = aten::add_?(%y, %other, %alpha)" taken apart.
struct Pattern {
  explicit Pattern(const std::string& line) {
    const size_t call = line.find("= ") + 2;
    const size_t open = line.find('(', call);
    kinds.push_back(line.substr(call, open - call));
    if (kinds[0].ends_with("_?"))
      kinds = {kinds[0].substr(0, kinds[0].size() - 2), kinds[0].substr(0, kinds[0].size() - 1)};
    for (size_t at = line.find('%', open); at != std::string::npos; at = line.find('%', at + 1)) {
      inputs.push_back(line.substr(at + 1, line.find_first_of(",)", at) - at - 1));
    }
  }

  bool fits(const Node* node) const { return node->inputs().size() == inputs.size(); }
  Value* value(Node* node, const std::string& name) const {
    const auto found = std::find(inputs.begin(), inputs.end(), name);
    TORCH_INTERNAL_ASSERT(found != inputs.end(), "no %", name, " in the pattern of ", kinds[0]);
    return node->input(static_cast<size_t>(found - inputs.begin()));
  }

  std::vector<std::string> kinds;
  std::vector<std::string> inputs;
};

// "leaky_relu(%slope)" with the number that %slope is in this node. None when it is no constant number.
std::optional<std::string> fill_in(std::string post_op, const Pattern& pattern, Node* node) {
  for (size_t at = post_op.find('%'); at != std::string::npos; at = post_op.find('%')) {
    const size_t end = post_op.find_first_of(",)", at);
    const bool is_negative = post_op[at - 1] == '-';
    const auto text = number_text(pattern.value(node, post_op.substr(at + 1, end - at - 1)), is_negative);
    if (!text) return std::nullopt;
    post_op.replace(at - is_negative, end - at + is_negative, *text);
  }
  return post_op;
}

// Far fewer than oneDNN's limit, which counts steps, of which a post-op may have three.
constexpr size_t most_post_ops = 10;

}  // namespace

FusionRule FusionRule::match(const std::string& ir) && {
  spellings_.push_back({ir, {}, "", ""});
  return std::move(*this);
}

FusionRule FusionRule::where(const std::string& value, Condition condition) && {
  return std::move(*this).when(value, condition, "");
}

FusionRule FusionRule::when(const std::string& value, Condition condition, const std::string& reason_if_not) && {
  spellings_.back().requirements.push_back({value, condition, reason_if_not});
  return std::move(*this);
}

FusionRule FusionRule::append(const std::string& post_op, const std::string& operand) && {
  spellings_.back().post_op = post_op;
  spellings_.back().operand = operand;
  return std::move(*this);
}

bool FusionRule::run(const std::shared_ptr<Graph>& graph, Recorder& recorder) const {
  bool changed = false;
  for (const Spelling& spelling : spellings_) changed |= apply(spelling, graph, recorder);
  return changed;
}

bool FusionRule::apply(const Spelling& spelling, const std::shared_ptr<Graph>& graph, Recorder& recorder) const {
  const Pattern pattern(spelling.ir);
  bool changed = false;
  const auto visit = [&](Node* node) {
    if (!pattern.fits(node)) return;
    const Value* y = pattern.value(node, "y");
    Value* operand = spelling.operand.empty() ? nullptr : pattern.value(node, spelling.operand);
    const auto anchor = Anchor::producing(y);
    if (!anchor || anchor->run()->owningBlock() != node->owningBlock()) return;
    const auto failed = std::find_if(spelling.requirements.begin(), spelling.requirements.end(),
                                     [&](const auto& r) { return !r.condition(pattern.value(node, r.value)); });
    const bool has_failed = failed != spelling.requirements.end();
    if (has_failed && failed->reason_if_not.empty()) return;

    const auto post_op = fill_in(spelling.post_op, pattern, node);
    const auto reason = [&]() -> std::optional<std::string> {
      if (y->uses().size() != 1) return "another reader needs the value before it";
      if (has_failed) return failed->reason_if_not;
      if (kind_of(node).ends_with('_') && !is_floating(y)) return "in place it keeps a dtype that may be an integer's";
      if (!post_op) return "its numbers are not constants, or NaN";
      if (anchor->post_ops().size() == most_post_ops) return "the packed op holds no more post-ops";
      if (operand && written_between(anchor->run(), node)) return "something is overwritten in between";
      return std::nullopt;
    }();
    if (reason) return recorder.declined(node, *reason);

    recorder.applied(node, "fused into " + describe(anchor->run()));
    if (operand) {
      // The operand may be computed only now. Without one the post-op runs earlier than before: nobody else sees %y.
      anchor->run()->moveBefore(node);
    }
    anchor->append_post_op(*post_op, operand);
    anchor->take_over(node);
    changed = true;
  };
  for (const std::string& kind : pattern.kinds) for_each(graph, kind.c_str(), visit);
  return changed;
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
