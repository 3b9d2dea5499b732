#include "autocast_regions.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/graph_walk.h"

namespace ipex::passes {
namespace {

// What the statement's object is made with.
std::optional<c10::IValue> field(const Value* object, const std::string& name) {
  for (const Use& use : object->uses()) {
    if (use.user->kind() == c10::prim::SetAttr && use.offset == 0 && use.user->s(c10::attr::name) == name) {
      return torch::jit::toIValue(use.user->input(1));
    }
  }
  return std::nullopt;
}

bool turns_autocast_off(const Node* enter) {
  const Value* object = enter->input();
  const auto type = object->type()->cast<c10::ClassType>();
  if (!type || !type->name() || !type->name()->qualifiedName().ends_with("autocast_mode.autocast")) return false;
  return field(object, "_enabled") == c10::IValue(false) && field(object, "device") == c10::IValue("cpu");
}

Node* exit_of(Node* enter) {
  for (Node* node = enter->next(); node != enter->owningBlock()->return_node(); node = node->next()) {
    if (node->kind() == c10::prim::Exit && node->input() == enter->input()) return node;
  }
  return nullptr;
}

bool is_border(const Value* value) {
  const auto kind = value->node()->kind();
  return has_tensor_type(value) && kind != c10::prim::Constant && kind != c10::prim::GetAttr;
}

void separate_region(Graph& graph, Node* enter, Node* exit) {
  std::unordered_set<const Node*> inside;
  std::vector<Node*> nodes;
  const auto add = [&](Node* node) {
    inside.insert(node);
    nodes.push_back(node);
  };
  for (Node* node = enter->next(); node != exit; node = node->next()) {
    for (Block* block : node->blocks()) {
      for_each_node(block, add);
      inside.insert(block->param_node());
      inside.insert(block->return_node());
      nodes.push_back(block->return_node());
    }
    add(node);
  }
  const auto kept_apart = [&](Node* before, Value* value, Value* pause) {
    const torch::jit::WithInsertPoint guard(before);
    static const Symbol op = Symbol::fromQualString("ipex::kept_apart");
    return graph.insert(op, {value, pause})->setType(value->type());
  };
  Value* pause = [&] {
    static const Symbol begin = Symbol::fromQualString("ipex::pause_autocast");
    static const Symbol end = Symbol::fromQualString("ipex::resume_autocast");
    torch::jit::WithInsertPoint guard(enter->next());
    Value* made = graph.insert(begin, {});
    graph.create(end, {made}, 0)->insertBefore(exit);
    return made;
  }();
  std::unordered_map<Value*, Value*> entered;
  for (Node* node : nodes) {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      Value* value = node->input(i);
      if (!is_border(value) || inside.count(value->node())) continue;
      Value*& apart = entered[value];
      if (!apart) apart = kept_apart(pause->node()->next(), value, pause);
      node->replaceInput(i, apart);
    }
  }
  for (Node* node : nodes) {
    if (node->owningBlock() != enter->owningBlock()) continue;
    for (Value* value : node->outputs()) {
      const std::vector<Use> uses = value->uses();
      const bool leaves =
          std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return !inside.count(use.user); });
      if (!leaves || !is_border(value)) continue;
      Value* apart = kept_apart(exit->next(), value, pause);
      for (const Use& use : uses) {
        if (!inside.count(use.user)) use.user->replaceInput(use.offset, apart);
      }
    }
  }
}

}  // namespace

void keep_autocast_off(Graph& graph) {
  std::vector<Node*> regions;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() == c10::prim::Enter && turns_autocast_off(node)) regions.push_back(node);
  });
  for (Node* enter : regions) {
    if (Node* exit = exit_of(enter)) separate_region(graph, enter, exit);
  }
}

}  // namespace ipex::passes
