#include "finalize/pack_weights.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include "graph_walk.h"

namespace ipex::passes {
namespace {

using torch::jit::IValue;
using torch::jit::WithInsertPoint;

bool is_prepack(const Node* node) { return kind_of(node).starts_with("ipex::") && kind_of(node).ends_with("_prepack"); }

// The layers of a chain: see chain_linears.
bool is_list_of_contexts(const Node* node) {
  return node->kind() == c10::prim::ListConstruct && !node->inputs().empty() && is_prepack(node->input(0)->node());
}

bool is_in_list(const Node* prepack) {
  const auto& uses = prepack->output()->uses();
  return !uses.empty() && is_list_of_contexts(uses[0].user);
}

IValue execute(const Node* prepack);

// Each plain weight goes before the next one is packed.
IValue execute_all(Node* list) {
  c10::impl::GenericList contexts(list->output()->type()->containedType(0));
  while (!list->inputs().empty()) {
    contexts.push_back(execute(list->input(0)->node()));
    list->removeInput(0);
    torch::jit::EliminateDeadCode(list->owningGraph()->block(), false);
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

// `store(context)` gives the value that replaces the prepack node's, inserted in its place.
template <typename Store>
void pack(const std::shared_ptr<Graph>& graph, Store&& store) {
  for_each_node(graph->block(), [&](Node* node) {
    if (!is_prepack(node) || is_in_list(node)) return;
    const IValue context = execute(node);
    const WithInsertPoint guard(node);
    Value* stored = store(context);
    stored->setType(context.type());
    node->output()->replaceAllUsesWith(stored);
    node->destroy();
    // The plain weight goes as soon as the packed one is there: at no time are there two copies of all of them.
    torch::jit::EliminateDeadCode(graph->block(), false);
  });
}

}  // namespace

void pack_into_attributes(const std::shared_ptr<Graph>& graph, torch::jit::Module& module) {
  pack(graph, [&](const IValue& context) {
    std::string name;
    for (size_t i = 0; name.empty() || module.hasattr(name); ++i) name = "packed_" + std::to_string(i);
    module.register_attribute(name, context.type(), context);
    return graph->insertGetAttr(graph->inputs().at(0), name);
  });
}

void pack_into_constants(const std::shared_ptr<Graph>& graph) {
  pack(graph, [&](const IValue& context) {
    Node* constant = graph->create(c10::prim::Constant);
    constant->ival_(c10::attr::value, context);
    return graph->insertNode(constant)->output();
  });
}

}  // namespace ipex::passes
