#include "ir/calls.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace ipex::passes {

Node* insert_call(Graph& graph, const c10::OperatorName& op, at::ArrayRef<Value*> given) {
  const c10::FunctionSchema& schema =
      c10::Dispatcher::singleton().findSchemaOrThrow(op.name.c_str(), op.overload_name.c_str()).schema();
  std::vector<Value*> inputs = given.vec();
  for (size_t i = inputs.size(); i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    TORCH_INTERNAL_ASSERT(argument.default_value(), op.name, " without ", argument.name());
    inputs.push_back(graph.insertConstant(*argument.default_value()));
  }
  const auto& results = schema.returns();
  Node* node = graph.insertNode(graph.create(Symbol::fromQualString(op.name), inputs, results.size()));
  for (size_t i = 0; i < results.size(); ++i) node->output(i)->setType(results[i].type());
  return node;
}

bool has_argument(const Node* node, const char* name) {
  return node->maybeSchema() && node->schema().argumentIndexWithName(name);
}

}  // namespace ipex::passes
