#include "frontend.h"

#include <torch/csrc/jit/passes/freeze_module.h>

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
  Module frozen = torch::jit::freeze_module(module, other_methods);
  restore_plain_attributes(module, frozen);
  unshare(frozen);
  return frozen;
}

}  // namespace ipex::passes
