#include "ir/flow.h"

#include <algorithm>
#include <iterator>

#include "ir/graph_walk.h"
#include "ir/schemas.h"

namespace ipex::passes {
namespace {

std::vector<Value*> outputs_of(const Node* node) { return const_cast<Node*>(node)->outputs().vec(); }

// All reads of an attribute of this name. Whose attribute it is may not be known.
std::vector<Value*> reads_of_attribute(const Node* write) {
  std::vector<Value*> found;
  for_each_node(const_cast<Graph*>(write->owningGraph())->block(), [&](Node* node) {
    if (node->kind() == c10::prim::GetAttr && node->s(c10::attr::name) == write->s(c10::attr::name)) {
      found.push_back(node->output());
    }
  });
  return found;
}

// The results of an op with a row that may lie in the memory of this input. A list of tensors may be any input.
bool shares(const Op& op, const Use& use) {
  switch (op.memory) {
    case Memory::fresh:
      return false;
    case Memory::no_tensor:
      return op.has(trait::carries);
    case Memory::view:
    case Memory::itself:
      return use.offset == 0;
    case Memory::maybe_view:
      return use.offset == 0 || use.user->input(use.offset)->type()->kind() == c10::TypeKind::ListType;
    case Memory::unknown:
      return true;
  }
  return true;
}

}  // namespace

bool may_hold_tensors(const c10::TypePtr& type) {
  if (const auto list = type->cast<c10::ListType>()) return may_hold_tensors(list->getElementType());
  const c10::TypePtr plain[] = {c10::NumberType::get(), c10::BoolType::get(), c10::StringType::get(),
                                c10::NoneType::get()};
  return std::none_of(std::begin(plain), std::end(plain), [&](const auto& t) { return type->isSubtypeOf(*t); });
}

Flow flow_of(const Use& use) {
  const Node* user = use.user;
  if (!may_hold_tensors(user->input(use.offset)->type())) return {};
  if (user->kind() == c10::prim::Return) {
    if (!user->owningBlock()->owningNode()) return {.names = {}, .is_returned = true};
    return {.names = outputs_of(user->owningBlock()->owningNode())};
  }
  if (user->kind() == c10::prim::SetAttr) return {.names = reads_of_attribute(user), .is_stored = true};
  if (!user->blocks().empty()) {  // carried by a loop, or into a block that is no loop's
    Flow flow{.names = outputs_of(user)};
    for (Block* inner : const_cast<Node*>(user)->blocks()) {
      flow.names.insert(flow.names.end(), inner->inputs().begin(), inner->inputs().end());
    }
    return flow;
  }
  const Op* op = op_of(user);
  if (op) return shares(*op, use) ? Flow{.names = outputs_of(user)} : Flow{};
  const bool is_lost = !has_true_schema(user) || keeps_argument(user, use.offset);
  return {.names = outputs_of(user), .is_lost = is_lost};
}

}  // namespace ipex::passes
