#include "chains/elementwise_ports.h"

#include "ir/calls.h"

namespace ipex::passes {

std::vector<Value*> results_of(const Node* node) {
  Value* result = const_cast<Value*>(node->output(0));
  if (result->type()->kind() != c10::TypeKind::ListType) return {result};
  return result->uses().at(0).user->outputs().vec();
}

Node* maker_of(const Value* value) {
  Node* node = const_cast<Node*>(value->node());
  return node->kind() == c10::prim::ListUnpack ? node->input()->node() : node;
}

bool has_port(const Node* node, const char* name) { return has_argument(node, name) && has_argument(node, "rounded"); }

void give_inputs(Node* elementwise, at::ArrayRef<Value*> inputs) {
  const torch::jit::WithInsertPoint guard(elementwise);
  Graph* graph = elementwise->owningGraph();
  Node* before = elementwise->input(0)->node();
  elementwise->replaceInput(0, graph->insertNode(graph->createList(c10::TensorType::get(), inputs))->output());
  if (!before->hasUses()) before->destroy();
}

}  // namespace ipex::passes
