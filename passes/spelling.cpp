#include "spelling.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <unordered_set>

#include "aliasing.h"
#include "constants.h"
#include "graph_walk.h"

namespace ipex::passes {
namespace {

using torch::jit::IValue;
using torch::jit::toIValue;

// The names in "%a, %b : int".
std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = text.find('%'); at != std::string::npos; at = text.find('%', at + 1)) {
    names.push_back(text.substr(at + 1, text.find_first_of(",) ", at) - at - 1));
  }
  return names;
}

bool commutes(const std::string& kind) { return kind == "aten::mul" || kind == "aten::add"; }

bool is_in_place(const Node* node) { return kind_of(node).ends_with('_'); }

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
  std::istringstream text(ir);
  for (std::string line; std::getline(text, line);) {
    const size_t equals = line.find('='), open = line.find('(');
    TORCH_INTERNAL_ASSERT(equals != std::string::npos && open != std::string::npos, line);
    const size_t kind = line.find_first_not_of(' ', equals + 1);
    lines_.push_back({line.substr(kind, open - kind), names_in(line.substr(open)), names_in(line.substr(0, equals))});
  }
}

Spelling Spelling::when(const std::string& value, Condition condition, const std::string& reason_if_not) && {
  requirements_.push_back({value, std::move(condition), reason_if_not});
  return std::move(*this);
}

Spelling Spelling::becomes(const std::string& op, const std::vector<std::string>& values,
                           const std::vector<IValue>& constants) && {
  return std::move(*this).becomes(op, [=](const Match& match) {
    Graph* graph = match.last()->owningGraph();
    std::vector<Value*> arguments;
    for (const std::string& value : values) arguments.push_back(match[value]);
    for (const IValue& constant : constants) arguments.push_back(graph->insertConstant(constant));
    return graph->insertNode(graph->create(Symbol::fromQualString(op), arguments));
  });
}

Spelling Spelling::becomes(const std::string& what, Build build) && {
  what_ = what;
  build_ = std::move(build);
  return std::move(*this);
}

Spelling Spelling::keep(const std::string& value, size_t output) && {
  kept_[value] = output;
  return std::move(*this);
}

const Spelling::Line* Spelling::line_computing(const std::string& name) const {
  for (const Line& line : lines_) {
    if (std::find(line.outputs.begin(), line.outputs.end(), name) != line.outputs.end()) return &line;
  }
  return nullptr;
}

bool Spelling::mentions(const std::string& name) const {
  return std::any_of(lines_.begin(), lines_.end(), [&](const Line& line) {
    return std::count(line.inputs.begin(), line.inputs.end(), name) +
               std::count(line.outputs.begin(), line.outputs.end(), name) >
           0;
  });
}

// Every way in which `value` can be what `name` stands for, given what the other names stand for already. There may be
// several, because operands match in either order.
std::vector<Match> Spelling::matches(const std::string& name, Value* value, const Match& so_far) const {
  if (const auto known = so_far.values.find(name); known != so_far.values.end()) {
    return known->second == value ? std::vector{so_far} : std::vector<Match>{};
  }
  Match match = so_far;
  const Line* line = line_computing(name);
  if (!line) {
    match.values[name] = value;
    return {match};
  }
  Node* node = value->node();
  const std::string kind = kind_of(node);
  if ((kind != line->kind && kind != line->kind + "_") || node->inputs().size() != line->inputs.size() ||
      node->outputs().size() != line->outputs.size() || line->outputs[value->offset()] != name) {
    return {};
  }
  for (size_t i = 0; i < line->outputs.size(); ++i) match.values[line->outputs[i]] = node->output(i);
  match.nodes.push_back(node);

  std::vector<Match> found;
  for (const bool swap : {false, true}) {
    if (swap && !commutes(line->kind)) break;
    std::vector<Match> partial{match};
    for (size_t i = 0; i < line->inputs.size(); ++i) {
      std::vector<Match> extended;
      for (const Match& m : partial) {
        const auto more = matches(line->inputs[i], node->input(swap && i < 2 ? 1 - i : i), m);
        extended.insert(extended.end(), more.begin(), more.end());
      }
      partial = std::move(extended);
    }
    found.insert(found.end(), partial.begin(), partial.end());
  }
  return found;
}

// An op's gradient may need other values than the spelling's does, and as they were.
std::optional<std::string> Spelling::reason_against_writers(const Match& match) const {
  for (const auto& [name, value] : match.values) {
    for (const Use& use : value->uses()) {
      if (!contains(match.nodes, use.user) && overwrites(use)) return name + " is overwritten";
    }
  }
  return std::nullopt;
}

std::optional<std::string> Spelling::unmet_requirement(const Match& match) const {
  for (const Requirement& requirement : requirements_) {
    if (!requirement.condition(match[requirement.value])) return requirement.reason_if_not;
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

std::optional<std::string> Spelling::reason_against(const Match& match) const {
  const Node* last = match.last();
  for (const Node* node : match.nodes) {
    if (node->owningBlock() != last->owningBlock()) return "an if or a loop stands in between";
  }
  if (const auto reason = reason_against_readers(match)) return reason;
  for (const Node* node = match.nodes.front(); node != last->next(); node = node->next()) {
    const bool own = contains(match.nodes, node);
    if (own && is_in_place(node) && !overwrites_unseen(node, match.nodes)) {
      return "what it overwrites may be read elsewhere";
    }
    if (!own && may_write(node)) return "something is overwritten in between";
  }
  return reason_against_writers(match);
}

void Spelling::replace(const Match& match) const {
  Node* last = match.last();
  const torch::jit::WithInsertPoint guard(last);
  Node* made = build_(match);
  made->setSourceRange(last->sourceRange());
  made->setScope(last->scope());
  made->output(0)->copyMetadata(last->output());
  last->output()->replaceAllUsesWith(made->output(0));
  for (const auto& [name, output] : kept_) {
    made->output(output)->copyMetadata(match[name]);
    match[name]->replaceAllUsesAfterNodeWith(last, made->output(output));
  }
  for (auto node = match.nodes.rbegin(); node != match.nodes.rend(); ++node) (*node)->destroy();
}

bool Spelling::apply(Node* last, Recorder& recorder) const {
  const std::string& result = lines_.back().outputs.front();
  if (!kind_of(last).starts_with(lines_.back().kind)) return false;
  std::vector<Match> found = matches(result, last->output(0), {});
  if (found.empty()) return false;
  const auto fitting = std::find_if(found.begin(), found.end(), [&](const Match& m) { return !unmet_requirement(m); });
  Match& match = fitting == found.end() ? found.front() : *fitting;
  std::sort(match.nodes.begin(), match.nodes.end(), [](const Node* a, const Node* b) { return a->isBefore(b); });

  auto reason = unmet_requirement(match);
  if (!reason) reason = reason_against(match);
  if (reason) {
    recorder.declined(last, "not " + what_ + ": " + *reason);
    return false;
  }
  recorder.applied(last, "became " + what_);
  replace(match);
  return true;
}

bool rewrite_spellings(const std::shared_ptr<Graph>& graph, Recorder& recorder,
                       const std::vector<Spelling>& spellings) {
  bool changed = false;
  for_each_node(graph->block(), [&](Node* node) {
    changed |=
        std::any_of(spellings.begin(), spellings.end(), [&](const Spelling& s) { return s.apply(node, recorder); });
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
