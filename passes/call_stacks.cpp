#include "call_stacks.h"

#include <torch/csrc/jit/ir/scope.h>

#include <unordered_map>

#include "ir/graph_walk.h"

namespace ipex::passes {
namespace {

using torch::jit::InlinedCallStack;
using torch::jit::InlinedCallStackPtr;

// Nodes share what they were called through.
class Holder {
 public:
  explicit Holder(torch::jit::Function& holder) : holder_(&holder) {}

  InlinedCallStackPtr held(const InlinedCallStackPtr& calls) {
    if (const auto known = held_.find(calls.get()); known != held_.end()) return known->second;
    std::string name = calls->function_name();
    const auto callee = calls->callee();
    const InlinedCallStackPtr made =
        callee ? c10::make_intrusive<InlinedCallStack>(held(*callee), holder_, calls->source_range(),
                                                       calls->module_instance(), name)
               : c10::make_intrusive<InlinedCallStack>(holder_, calls->source_range(), calls->module_instance(), name);
    return held_.emplace(calls.get(), made).first->second;
  }

 private:
  torch::jit::Function* holder_;
  std::unordered_map<const InlinedCallStack*, InlinedCallStackPtr> held_;
};

}  // namespace

void hold_functions(Graph& graph, torch::jit::Function& holder) {
  Holder functions(holder);
  for_each_node(graph.block(), [&](Node* node) {
    if (const auto calls = node->callstack()) node->setCallStack(functions.held(*calls));
  });
}

}  // namespace ipex::passes
