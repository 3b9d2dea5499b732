#include "frontend.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <exception>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autocast_regions.h"
#include "copied_tensors.h"
#include "ir/aliasing.h"
#include "ir/context_constants.h"
#include "ir/graph_walk.h"
#include "ir/storages.h"
#include "lifted_tensors.h"
#include "made_anew.h"
#include "told_aliases.h"

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
  CopiedTensors copies;
  for (Module part : module.modules()) {
    for (size_t i = 0; i < part.type()->numAttributes(); ++i) {
      const std::string& name = part.type()->getAttributeName(i);
      const c10::IValue value = part.attr(name);
      if (!value.isModule() && !value.isCustomClass()) part.setattr(name, copies.copy(value));
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

bool is_submodule(const Value* value) {
  const auto type = value->type()->cast<c10::ClassType>();
  return type && type->is_module();
}

// The names of attributes that the graph sets.
std::unordered_set<std::string> names_set(Graph& graph) {
  std::unordered_set<std::string> names;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() == c10::prim::SetAttr) names.insert(node->s(c10::attr::name));
  });
  return names;
}

// Reads each submodule once. A trace reads a list of n modules n times; torch's alias analysis visits all n children at
// each read, and freezing runs it more than once.
void share_submodules(Graph& graph) {
  const std::unordered_set<std::string> written = names_set(graph);
  std::vector<Node*> reads;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() == c10::prim::GetAttr && is_submodule(node->output())) reads.push_back(node);
  });
  std::map<std::pair<const Value*, std::string>, Value*> known;
  for (Node* read : reads) {
    const std::string& name = read->s(c10::attr::name);
    // One that is read inside an `if` is there for that block only.
    if (written.count(name) || read->owningBlock() != graph.block()) continue;
    const auto [first, is_new] = known.try_emplace({read->input(), name}, read->output());
    if (is_new) continue;
    read->output()->replaceAllUsesWith(first->second);
    read->destroy();
  }
}

// Reads numbers and flags of the module now, as `training`: what stands in a branch that is never taken writes nothing.
void read_numbers(const Module& module) {
  const Storages storages(module);
  for (const auto& method : module.get_methods()) {
    const auto graph = torch::jit::toGraphFunction(method.function()).graph();
    for_each_node(graph->block(), [&](Node* node) {
      const c10::IValue* value = node->kind() == c10::prim::GetAttr ? storages.constant(node) : nullptr;
      if (!value || !(value->isBool() || value->isInt() || value->isDouble() || value->isString())) return;
      const torch::jit::WithInsertPoint guard(node);
      node->output()->replaceAllUsesWith(graph->insertConstant(*value));
    });
    auto same = graph;
    torch::jit::ConstantPropagationImmutableTypes(same);
  }
}

// Takes the module's tensors out of the graph of a method, where they are constants, and with them what reads the
// submodules that they come from. Contexts become constants at once.
void lift_attributes(Graph& graph, const Storages& storages, LiftedTensors& lifted) {
  std::vector<Node*> reads;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() != c10::prim::GetAttr) return;
    reads.push_back(node);
    const c10::IValue* value = storages.constant(node);
    if (value && is_context(*value)) {
      const torch::jit::WithInsertPoint guard(*graph.nodes().begin());
      node->output()->replaceAllUsesWith(insert_constant_context(graph, *value));
    }
    if (!value || !value->isTensor() || !value->toTensor().defined() || !value->toTensor().has_storage()) return;
    node->output()->replaceAllUsesWith(lifted.lift(value->toTensor(), graph));
  });
  for (size_t i = reads.size(); i-- > 0;) {
    if (!reads[i]->hasUses()) reads[i]->destroy();
  }
}

// Freezing takes detach away: what then changes the shape of its result would change its input's. An alias stays, and is a detach again
// afterwards: gradients refuse an alias where they take a detach, of a piece of what was changed in place.
Symbol was_detach() { return Symbol::attr("was_detach"); }

void keep_detached_apart(const std::shared_ptr<Graph>& graph) {
  if (!reshapes_in_place(graph)) return;
  for_each(graph, "aten::detach", [&](Node* detach) {
    const torch::jit::WithInsertPoint guard(detach->next());
    Value* alias = graph->insert(c10::aten::alias, {detach->output()});
    alias->node()->i_(was_detach(), 1);
    detach->output()->replaceAllUsesAfterNodeWith(alias->node(), alias);
  });
}

void detach_again(const std::shared_ptr<Graph>& graph) {
  for_each(graph, "aten::alias", [&](Node* alias) {
    if (!alias->hasAttribute(was_detach())) return;
    const torch::jit::WithInsertPoint guard(alias);
    replace(alias, graph->insert(c10::aten::detach, {alias->input()})->node());
  });
}

// Freezes the module without a look at its weights: see lifted_tensors.h. In place, as it is ours: freezing would make another copy.
void freeze_past_weights(Module& copy, const Storages& storages, const std::vector<std::string>& kept) {
  std::map<std::string, LiftedTensors> lifted;
  for (const auto& method : copy.get_methods()) {
    const auto graph = torch::jit::toGraphFunction(method.function()).graph();
    lift_attributes(*graph, storages, lifted.emplace(method.name(), LiftedTensors(*graph)).first->second);
  }
  torch::jit::freeze_module_inplace(&copy, kept);
  for (const auto& method : copy.get_methods()) {
    const auto graph = torch::jit::toGraphFunction(method.function()).graph();
    lifted.at(method.name()).put_back(*graph);
    detach_again(graph);
  }
}

void drop_tensors(Node* node) {
  for (const Symbol name : node->attributeNames()) {
    const torch::jit::AttributeKind kind = node->kindOf(name);
    const bool may_hold = kind == torch::jit::AttributeKind::t || kind == torch::jit::AttributeKind::ts ||
                          kind == torch::jit::AttributeKind::ival;
    if (may_hold) node->removeAttribute(name);
  }
}

// The types of what is in a module, but its own.
std::vector<c10::ClassTypePtr> types_of_parts(const Module& copy) {
  std::vector<c10::ClassTypePtr> types;
  for (const Module& part : copy.modules()) {
    if (part.type() != copy.type() && std::find(types.begin(), types.end(), part.type()) == types.end()) {
      types.push_back(part.type());
    }
  }
  return types;
}

bool calls_methods(const Module& module) {
  bool found = false;
  for (const auto& method : module.get_methods()) {
    for_each_node(torch::jit::toGraphFunction(method.function()).graph()->block(),
                  [&](const Node* node) { found |= node->kind() == c10::prim::CallMethod; });
  }
  return found;
}

// Their graphs are part of the copy's now, and nobody else has these types. TorchScript would keep them for as long as the original's
// code, which in Python is for good: tens of MB for a language model, each time that it is optimised.
void forget_methods(const std::vector<c10::ClassTypePtr>& types) {
  for (const c10::ClassTypePtr& type : types) {
    const std::vector<torch::jit::Function*> methods = type->methods();
    for (const torch::jit::Function* method : methods) {
      const c10::QualifiedName name = method->qualname();
      type->unsafeRemoveMethod(method->name());
      type->compilation_unit()->unsafeRemoveMethod(name);
    }
  }
}

}  // namespace

Unfinished::Unfinished(const Module& copy) : copy_(copy), exceptions_before_(std::uncaught_exceptions()) {}

Unfinished::~Unfinished() {
  if (std::uncaught_exceptions() <= exceptions_before_) return;
  try {
    for (const auto& method : copy_.get_methods()) {
      for_each_node(torch::jit::toGraphFunction(method.function()).graph()->block(), drop_tensors);
    }
  } catch (const std::exception&) {  // no memory for that either
  }
}

Module frozen_copy(const Module& module) {
  check(module);
  Module copy = module.clone(/*inplace=*/true);
  const Unfinished unfinished(copy);
  const std::vector<c10::ClassTypePtr> parts = types_of_parts(copy);
  for (const auto& method : copy.get_methods()) {
    const auto graph = torch::jit::toGraphFunction(method.function()).graph();
    torch::jit::Inline(*graph);
    share_submodules(*graph);
    keep_detached_apart(graph);
    keep_autocast_off(*graph);
    copy_written_literals(*graph);
    tell_aliases(graph);
  }
  read_numbers(copy);
  const Storages storages(copy);
  std::vector<std::string> kept = make_anew(copy, storages);
  if (is_frozen(module)) {
    unshare(copy);
    return copy;
  }
  for (std::string& path : storages.changing_attributes()) kept.push_back(std::move(path));
  for (const auto& method : copy.get_methods()) {
    if (method.name() != "forward") kept.push_back(method.name());
  }
  freeze_past_weights(copy, storages, kept);
  restore_plain_attributes(module, copy);
  unshare(copy);
  if (!calls_methods(copy)) forget_methods(parts);
  return copy;
}

}  // namespace ipex::passes
