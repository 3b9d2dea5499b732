#include "frontend.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <map>
#include <unordered_map>

#include "aliasing.h"
#include "graph_walk.h"
#include "lifted_tensors.h"

namespace ipex::passes {
namespace {

using torch::jit::Module;

void check(const Module& module) {
  TORCH_CHECK(
      module.find_method("forward"),
      "ipex.jit_optimize: expected a module with a forward method, got one without. Trace or script a model first.");
  TORCH_CHECK(!module.hasattr("training") || !module.attr("training").toBool(),
              "ipex.jit_optimize: expected a module in eval mode, got training=True. Call model.eval() before "
              "torch.jit.trace or torch.jit.script.");
  const auto hooks = module.type()->getForwardHooks().size() + module.type()->getForwardPreHooks().size();
  TORCH_CHECK(hooks == 0, "ipex.jit_optimize: expected a module without forward hooks of its own, got ", hooks,
              ". Make it a submodule of another module: hooks of submodules are kept.");
}

// Freezing takes away `training`, parameters and submodules. (A module built in C++ may never have had the first.)
bool is_frozen(const Module& module) {
  return !module.hasattr("training") && module.parameters().size() == 0 && module.children().size() == 0;
}

// What freezing leaves shared with the original and somebody may write to: a buffer that forward changes, a list. Packed
// weights are never written to, so they may stay shared.
void unshare(Module& module) {
  c10::IValue::HashIdentityIValueMap copies;
  for (Module part : module.modules()) {
    for (size_t i = 0; i < part.type()->numAttributes(); ++i) {
      const std::string& name = part.type()->getAttributeName(i);
      const c10::IValue value = part.attr(name);
      if (!value.isObject()) part.setattr(name, value.deepcopy(copies));
    }
  }
}

// Freezing drops every attribute that forward doesn't read; what a user put there (a list of class names, a version)
// comes back. Tensors and submodules don't: they would hold the weights a second time.
void restore_plain_attributes(const Module& from, Module& to) {
  for (size_t i = 0; i < from.type()->numAttributes(); ++i) {
    const std::string& name = from.type()->getAttributeName(i);
    const auto value = from.attr(name);
    if (name == "training" || to.hasattr(name) || value.isTensor() || value.isObject()) continue;
    to.register_attribute(name, from.type()->getAttribute(i), value);
  }
}

using Lifted = std::map<std::string, LiftedTensors>;

// Takes the module's tensors out of the graph of a method, where they can be found by name alone.
void lift_attributes(Graph& graph, const Module& module, LiftedTensors& lifted) {
  std::unordered_map<const Value*, Module> modules{{graph.inputs().at(0), module}};
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() != c10::prim::GetAttr) return;
    const auto owner = modules.find(node->input());
    if (owner == modules.end()) return;
    const c10::IValue value = owner->second.attr(node->s(c10::attr::name));
    if (value.isModule()) modules.emplace(node->output(), value.toModule());
    if (!value.isTensor() || !value.toTensor().defined()) return;
    node->output()->replaceAllUsesWith(lifted.lift(value.toTensor(), graph));
  });
}

// Freezing takes detach away: what then changes the shape of its result would change its input's. An alias stays.
void keep_detached_apart(const std::shared_ptr<Graph>& graph) {
  if (!reshapes_in_place(graph)) return;
  for_each(graph, "aten::detach", [&](Node* detach) {
    const torch::jit::WithInsertPoint guard(detach->next());
    Value* alias = graph->insert(c10::aten::alias, {detach->output()});
    detach->output()->replaceAllUsesAfterNodeWith(alias->node(), alias);
  });
}

bool may_write_weights(const std::shared_ptr<Graph>& graph) {
  bool writes = writes_to_shared_memory(graph);
  for_each(graph, "prim::SetAttr", [&](Node*) { writes = true; });
  return writes;
}

// The frozen module without a look at its weights: see lifted_tensors.h. Nothing may write to them.
Module frozen_past_weights(const Module& copy, std::vector<std::string> other_methods) {
  Lifted lifted;
  for (const auto& method : copy.get_methods()) {
    const auto graph = torch::jit::toGraphFunction(method.function()).graph();
    LiftedTensors& own = lifted.emplace(method.name(), LiftedTensors(*graph)).first->second;
    lift_attributes(*graph, copy, own);
  }
  Module frozen = torch::jit::freeze_module(copy, std::move(other_methods));
  for (const auto& method : frozen.get_methods()) {
    lifted.at(method.name()).put_back(*torch::jit::toGraphFunction(method.function()).graph());
  }
  return frozen;
}

}  // namespace

Module frozen_copy(const Module& module) {
  check(module);
  if (is_frozen(module)) {
    Module copy = module.clone(/*inplace=*/true);
    unshare(copy);
    return copy;
  }
  std::vector<std::string> other_methods;
  for (const auto& method : module.get_methods()) {
    if (method.name() != "forward") other_methods.push_back(method.name());
  }
  const Module copy = module.clone(/*inplace=*/true);
  bool writes = false;
  for (const auto& method : copy.get_methods()) {
    const auto graph = torch::jit::toGraphFunction(method.function()).graph();
    torch::jit::Inline(*graph);
    keep_detached_apart(graph);
    writes |= may_write_weights(graph);
  }
  Module frozen =
      writes ? torch::jit::freeze_module(copy, other_methods) : frozen_past_weights(copy, std::move(other_methods));
  restore_plain_attributes(module, frozen);
  unshare(frozen);
  return frozen;
}

}  // namespace ipex::passes
