#include "pattern/spelling.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "ir/aliasing.h"
#include "ir/calls.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "ir/reading.h"

namespace ipex::passes {
namespace {

using torch::jit::IValue;
using torch::jit::toIValue;

bool commutes(const PatternLine& line) { return line.kind() == c10::aten::mul || line.kind() == c10::aten::add; }

bool is_in_place(const Node* node) { return op_of(node)->memory == Memory::itself; }

bool contains(const std::vector<Node*>& nodes, const Node* node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

// Whether the in-place node may stand for the op that it is named after: what it overwrites is read by the match alone,
// and by no part of it that comes later.
bool overwrites_unseen(const Node* node, const std::vector<Node*>& match) {
  const Value* overwritten = node->input(0);
  return is_fresh(overwritten) &&
         std::all_of(overwritten->uses().begin(), overwritten->uses().end(), [&](const Use& use) {
           return contains(match, use.user) && (use.user == node || use.user->isBefore(node));
         });
}

}  // namespace

Spelling::Spelling(const std::string& ir) {
  std::istringstream text = reading(ir);
  for (std::string line; std::getline(text, line);) lines_.emplace_back(line).accept_in_place();
}

Spelling Spelling::declines_unless(const std::string& value, Condition condition, const std::string& reason) && {
  requirements_.push_back({value, std::move(condition), reason});
  return std::move(*this);
}

Spelling Spelling::becomes(const std::string& op, const std::vector<std::string>& values,
                           const std::vector<IValue>& constants) && {
  return std::move(*this).becomes(op, [=](const Match& match) {
    Graph* graph = match.last()->owningGraph();
    std::vector<Value*> arguments;
    for (const std::string& value : values) arguments.push_back(match[value]);
    for (const IValue& constant : constants) arguments.push_back(graph->insertConstant(constant));
    if (op.starts_with("ipex::")) return insert_call(*graph, {op, ""}, arguments);
    return graph->insertNode(graph->create(Symbol::fromQualString(op), arguments));
  });
}

Spelling Spelling::becomes(const std::string& what, Build build) && {
  what_ = what;
  build_ = std::move(build);
  return std::move(*this);
}

Spelling Spelling::keeps_gradient() && {
  keeps_gradient_ = true;
  return std::move(*this);
}

Spelling Spelling::keep(const std::string& value, size_t output) && {
  kept_[value] = output;
  return std::move(*this);
}

const PatternLine* Spelling::line_computing(const std::string& name) const {
  for (const PatternLine& line : lines_) {
    if (std::count(line.outputs().begin(), line.outputs().end(), name)) return &line;
  }
  return nullptr;
}

bool Spelling::mentions(const std::string& name) const {
  return line_computing(name) || std::any_of(lines_.begin(), lines_.end(), [&](const PatternLine& line) {
           return std::count(line.inputs().begin(), line.inputs().end(), name) > 0;
         });
}

// Every way in which `value` can be what `name` stands for, given what the other names stand for already. There may be
// several, because operands match in either order.
std::vector<Match> Spelling::matches(const std::string& name, Value* value, const Match& so_far) const {
  if (const auto known = so_far.values.find(name); known != so_far.values.end()) {
    return known->second == value ? std::vector{so_far} : std::vector<Match>{};
  }
  Match match = so_far;
  const PatternLine* line = line_computing(name);
  if (!line) {
    match.values[name] = value;
    return {match};
  }
  Node* node = value->node();
  if (!line->fits(node) || line->outputs()[value->offset()] != name) return {};
  for (size_t i = 0; i < line->outputs().size(); ++i) match.values[line->outputs()[i]] = node->output(i);
  match.nodes.push_back(node);

  std::vector<Match> found;
  for (const bool swap : {false, true}) {
    if (swap && !commutes(*line)) break;
    std::vector<Match> partial{match};
    for (size_t i = 0; i < line->inputs().size(); ++i) {
      std::vector<Match> extended;
      for (const Match& m : partial) {
        const auto more = matches(line->inputs()[i], node->input(swap && i < 2 ? 1 - i : i), m);
        extended.insert(extended.end(), more.begin(), more.end());
      }
      partial = std::move(extended);
    }
    found.insert(found.end(), partial.begin(), partial.end());
  }
  return found;
}

// The gradient of the op may read other values than that of the spelling, and needs them as they were before the write.
std::optional<std::string> Spelling::reason_against_writers(const Match& match) const {
  for (const auto& [name, value] : match.values) {
    for (const Use& use : value->uses()) {
      if (!contains(match.nodes, use.user) && overwrites_after(use, match.nodes.front()))
        return name + " is overwritten";
    }
  }
  return std::nullopt;
}

std::optional<std::string> Spelling::unmet_requirement(const Match& match) const {
  for (const Requirement& requirement : requirements_) {
    if (!requirement.condition(match[requirement.value])) return requirement.reason;
  }
  return std::nullopt;
}

std::optional<std::string> Spelling::reason_against_readers(const Match& match) const {
  for (const auto& [name, value] : match.values) {
    if (!line_computing(name) || value->node() == match.last()) continue;
    for (const Use& use : value->uses()) {
      if (contains(match.nodes, use.user)) continue;
      if (!kept_.count(name)) return "another reader needs a value in between";
      if (use.user->isBefore(match.last())) return "another reader needs a value in between, before the end";
    }
  }
  return std::nullopt;
}

// As a sum that is normalised and is the bias as well: what takes the place of both can't be given it.
bool Spelling::reads_itself(const Match& match) const {
  return std::any_of(match.values.begin(), match.values.end(), [&](const auto& named) {
    return !line_computing(named.first) && contains(match.nodes, named.second->node());
  });
}

std::optional<std::string> Spelling::reason_against(const Match& match) const {
  const Node* last = match.last();
  for (const Node* node : match.nodes) {
    if (node->owningBlock() != last->owningBlock()) return "an if or a loop stands in between";
  }
  if (const auto reason = reason_against_readers(match)) return reason;
  if (reads_itself(match)) return "one of its inputs is computed within";
  for (const Node* node = match.nodes.front(); node != last->next(); node = node->next()) {
    const bool own = contains(match.nodes, node);
    if (own && is_in_place(node) && !overwrites_unseen(node, match.nodes)) {
      return "what it overwrites may be read elsewhere";
    }
    if (!own && stops_motion(node)) return "something is overwritten in between";
  }
  return keeps_gradient_ ? std::nullopt : reason_against_writers(match);
}

void Spelling::replace(const Match& match) const {
  Node* last = match.last();
  const torch::jit::WithInsertPoint guard(last);
  Node* made = build_(match);
  made->setSourceRange(last->sourceRange());
  made->setScope(last->scope());
  made->output(0)->copyMetadata(last->output(0));
  last->output(0)->replaceAllUsesWith(made->output(0));
  for (const auto& [name, output] : kept_) {
    made->output(output)->copyMetadata(match[name]);
    match[name]->replaceAllUsesAfterNodeWith(last, made->output(output));
  }
  for (auto node = match.nodes.rbegin(); node != match.nodes.rend(); ++node) (*node)->destroy();
}

bool Spelling::apply(Node* last, Context& context) const {
  std::vector<Match> found = matches(lines_.back().outputs().front(), last->output(0), {});
  if (found.empty()) return false;
  const auto fitting = std::find_if(found.begin(), found.end(), [&](const Match& m) { return !unmet_requirement(m); });
  Match& match = fitting == found.end() ? found.front() : *fitting;
  std::sort(match.nodes.begin(), match.nodes.end(), [](const Node* a, const Node* b) { return a->isBefore(b); });

  auto reason = unmet_requirement(match);
  if (!reason) reason = reason_against(match);
  if (reason) {
    if (!reason->empty()) context.declined(last, "not " + what_ + ": " + *reason);
    return false;
  }
  context.became(last, what_);
  replace(match);
  return true;
}

bool rewrite_spellings(Context& context, const std::vector<Spelling>& spellings) {
  std::unordered_map<Symbol, std::vector<const Spelling*>> spellings_of;
  for (const Spelling& spelling : spellings) {
    for (const Symbol kind : spelling.kinds()) spellings_of[kind].push_back(&spelling);
  }
  bool changed = false;
  for_each_node(context.graph->block(), [&](Node* node) {
    const auto found = spellings_of.find(node->kind());
    if (found == spellings_of.end()) return;
    changed |= std::any_of(found->second.begin(), found->second.end(),
                           [&](const Spelling* spelling) { return spelling->apply(node, context); });
  });
  return changed;
}

Spelling::Condition equals(double expected) {
  return [expected](const Value* value) {
    constexpr double float32_tolerance = 1e-6;
    const auto actual = number(value);
    return actual && std::abs(*actual - expected) <= float32_tolerance * std::abs(expected);
  };
}

}  // namespace ipex::passes
