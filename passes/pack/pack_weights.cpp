#include "pack/pack_weights.h"

#include <torch/csrc/jit/ir/constants.h>

#include <unordered_set>

#include "ir/context_constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "pack/numbered_attributes.h"

namespace ipex::passes {
namespace {

using torch::jit::IValue;
using torch::jit::WithInsertPoint;

// The layers of a chain.
bool is_list_of_contexts(const Node* node) {
  return makes_list(node) && !node->inputs().empty() && is_prepack(node->input(0)->node());
}

bool is_in_list(const Node* prepack) {
  const auto& uses = prepack->output()->uses();
  return !uses.empty() && is_list_of_contexts(uses[0].user);
}

// Destroys a node that nobody reads, and the constants and lists that were there for it alone: plain weights with them.
void destroy_with_inputs(Node* node) {
  std::unordered_set<Node*> constants, lists;
  for (const Value* input : node->inputs()) {
    Node* maker = const_cast<Node*>(input->node());
    if (maker->kind() == c10::prim::Constant) constants.insert(maker);
    if (makes_list(maker)) lists.insert(maker);
  }
  node->destroy();
  for (Node* constant : constants) {
    if (!constant->hasUses()) constant->destroy();
  }
  for (Node* list : lists) {
    if (!list->hasUses()) destroy_with_inputs(list);
  }
}

IValue execute(const Node* prepack);

// Each plain weight goes before the next one is packed.
IValue execute_all(Node* list) {
  c10::impl::GenericList contexts(list->output()->type()->containedType(0));
  while (!list->inputs().empty()) {
    Node* prepack = list->input(0)->node();
    contexts.push_back(execute(prepack));
    list->removeInput(0);
    if (!prepack->hasUses()) destroy_with_inputs(prepack);
  }
  return contexts;
}

IValue execute(const Node* prepack) {
  torch::jit::Stack stack;
  for (const Value* input : prepack->inputs()) {
    auto* node = const_cast<Node*>(input->node());
    stack.push_back(is_list_of_contexts(node) ? execute_all(node) : *torch::jit::toIValue(input));
  }
  prepack->getOperation()(stack);
  return stack.back();
}

// `store(prepack, context)` gives the value that replaces the prepack node's, inserted in its place.
template <typename Store>
void pack(const std::shared_ptr<Graph>& graph, Store&& store) {
  std::vector<Node*> prepacks;
  for_each_node(graph->block(), [&](Node* node) {
    if (is_prepack(node) && !is_in_list(node)) prepacks.push_back(node);
  });
  for (Node* node : prepacks) {
    const IValue context = execute(node);
    const WithInsertPoint guard(node);
    Value* stored = store(node, context);
    stored->setType(context.type());
    node->output()->replaceAllUsesWith(stored);
    // The plain weight goes as soon as the packed one is there: at no time are there two copies of all of them.
    destroy_with_inputs(node);
  }
}

}  // namespace

void pack_into_attributes(const std::shared_ptr<Graph>& graph, torch::jit::Module& module) {
  static const Symbol shape_memo = Symbol::fromQualString("ipex::shape_memo_prepack");
  NumberedAttributes packed(module, "packed_"), memos(module, "memo_");
  pack(graph, [&](const Node* prepack, const IValue& context) {
    const bool is_memo = prepack->kind() == shape_memo;  // which packs nothing
    return (is_memo ? memos : packed).insert(*graph, context.type(), context);
  });
  // A graph that is saved has no contexts among its constants.
  std::vector<Node*> constants;
  for_each_node(graph->block(), [&](Node* node) {
    if (is_constant_context(node)) constants.push_back(node);
  });
  for (Node* node : constants) {
    const WithInsertPoint guard(node);
    const IValue context = node->ival(c10::attr::value);
    replace(node, packed.insert(*graph, context.type(), context)->node());
  }
}

void pack_into_constants(const std::shared_ptr<Graph>& graph) {
  pack(graph, [&](const Node*, const IValue& context) { return insert_constant_context(*graph, context); });
}

}  // namespace ipex::passes
