#include "ir/lists.h"

#include <algorithm>
#include <unordered_set>

#include "ir/graph_walk.h"
#include "ir/schemas.h"

namespace ipex::passes {
namespace {

bool is_container(const Node* node) {
  return node->kind() == c10::prim::ListConstruct || node->kind() == c10::prim::TupleConstruct ||
         node->kind() == c10::prim::DictConstruct;
}

bool is_list(const Value* value) { return value->type()->kind() == c10::TypeKind::ListType; }

// Follows a list to every name that it has in the graph.
class Changes {
 public:
  bool reach(const Value* list) {
    if (!seen_.insert(list).second) return false;
    return std::any_of(list->uses().begin(), list->uses().end(), [&](const Use& use) { return reach(use); });
  }

 private:
  bool reach(const Use& use) {
    const Node* user = use.user;
    if (user->kind() == c10::prim::ListUnpack) return false;
    const auto further = passed_on(use);
    if (!further.empty()) return std::any_of(further.begin(), further.end(), [&](Value* v) { return reach(v); });
    if (user->kind() == c10::prim::Return) return user->owningBlock()->owningNode() != nullptr;
    if (is_container(user)) return !is_only_returned(user->output());
    if (!has_true_schema(user) || writes_argument(user, use.offset) || keeps_argument(user, use.offset)) return true;
    // An op that hands the list on, under a name of which nothing is known.
    return !user->blocks().empty() || (hands_on_argument(user, use.offset) &&
                                       std::any_of(user->outputs().begin(), user->outputs().end(), is_list));
  }

  static bool is_only_returned(const Value* container) {
    return std::all_of(container->uses().begin(), container->uses().end(), [](const Use& use) {
      const bool leaves = use.user->kind() == c10::prim::Return && !use.user->owningBlock()->owningNode();
      return leaves || (is_container(use.user) && is_only_returned(use.user->output()));
    });
  }

  std::unordered_set<const Value*> seen_;
};

}  // namespace

bool makes_list(const Node* node) { return node->kind() == c10::prim::ListConstruct; }

std::optional<std::vector<Value*>> elements_of(const Value* list) {
  if (!makes_list(list->node())) return std::nullopt;
  return const_cast<Node*>(list->node())->inputs().vec();
}

std::optional<std::vector<Value*>> own_elements_of(const Value* list) {
  return list->uses().size() == 1 ? elements_of(list) : std::nullopt;
}

bool is_held(const Value* list) {
  return list->uses().size() == 1 && list->uses()[0].user->kind() == c10::prim::unchecked_cast;
}

bool may_change(const Value* list) { return Changes().reach(list); }

}  // namespace ipex::passes
