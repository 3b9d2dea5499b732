#include "fusion_rule.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "aliasing.h"
#include "anchor.h"
#include "graph_walk.h"

namespace ipex::passes {
namespace {

// "%z = aten::add(%y, %other, %alpha)" taken apart.
struct Pattern {
  explicit Pattern(const std::string& line) {
    const size_t call = line.find("= ") + 2;
    const size_t open = line.find('(', call);
    kind = line.substr(call, open - call);
    for (size_t at = line.find('%', open); at != std::string::npos; at = line.find('%', at + 1)) {
      inputs.push_back(line.substr(at + 1, line.find_first_of(",)", at) - at - 1));
    }
  }

  bool fits(const Node* node) const { return node->inputs().size() == inputs.size(); }
  Value* value(Node* node, const std::string& name) const {
    const auto found = std::find(inputs.begin(), inputs.end(), name);
    TORCH_INTERNAL_ASSERT(found != inputs.end(), "no %", name, " in the pattern of ", kind);
    return node->input(static_cast<size_t>(found - inputs.begin()));
  }

  std::string kind;
  std::vector<std::string> inputs;
};

// oneDNN's limit.
constexpr size_t most_post_ops = 32;

// Whether a packed op that moves from `run` down to `node` would read something that has been overwritten on the way.
bool written_between(const Node* run, const Node* node) {
  for (const Node* between = run->next(); between != node; between = between->next()) {
    if (may_write(between)) return true;
  }
  return false;
}

}  // namespace

FusionRule FusionRule::match(const std::string& ir) && {
  spellings_.push_back({ir, {}, "", ""});
  return std::move(*this);
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
  for_each(graph, pattern.kind.c_str(), [&](Node* node) {
    if (!pattern.fits(node)) return;
    const Value* y = pattern.value(node, "y");
    Value* operand = spelling.operand.empty() ? nullptr : pattern.value(node, spelling.operand);
    const auto anchor = Anchor::producing(y);
    if (!anchor || anchor->run()->owningBlock() != node->owningBlock()) return;

    const auto reason = [&]() -> std::optional<std::string> {
      if (y->uses().size() != 1) return "another reader needs the value before it";
      for (const Requirement& requirement : spelling.requirements) {
        if (!requirement.condition(pattern.value(node, requirement.value))) return requirement.reason_if_not;
      }
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
    anchor->append_post_op(spelling.post_op, operand);
    anchor->output()->copyMetadata(node->output());
    node->output()->replaceAllUsesWith(anchor->output());
    node->destroy();
    changed = true;
  });
  return changed;
}

bool is_tensor(const Value* value) { return value->type()->isSubtypeOf(*c10::TensorType::get()); }

bool is_one(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isScalar() && constant->toScalar().equal(1);
}

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
