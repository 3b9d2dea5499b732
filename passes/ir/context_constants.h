// Packed layers among the constants of a graph: what the runtime calls contexts.
#pragma once

#include "pipeline/pass.h"

namespace ipex::passes {

inline bool is_context(const c10::IValue& value) {
  return value.isCustomClass() && value.type()->annotation_str().starts_with("__torch__.torch.classes.ipex.");
}

inline bool is_constant_context(const Node* node) {
  return node->kind() == c10::prim::Constant && node->hasAttribute(c10::attr::value) &&
         node->kindOf(c10::attr::value) == torch::jit::AttributeKind::ival && is_context(node->ival(c10::attr::value));
}

// At the insert point.
inline Value* insert_constant_context(Graph& graph, const c10::IValue& context) {
  Node* constant = graph.create(c10::prim::Constant);
  constant->ival_(c10::attr::value, context);
  constant->output()->setType(context.type());
  return graph.insertNode(constant)->output();
}

}  // namespace ipex::passes
