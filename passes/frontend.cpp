#include "frontend.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autocast_regions.h"
#include "ir/aliasing.h"
#include "ir/graph_walk.h"
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

using Lifted = std::map<std::string, LiftedTensors>;
using Storages = std::unordered_set<const c10::StorageImpl*>;

// Calls visit(node, value) for every attribute that the graph reads by name alone: of the module, of its submodules, ...
// Returns whether that is all that the graph does with modules.
template <typename Visit>
bool for_each_attribute(Graph& graph, const Module& module, Visit&& visit) {
  std::unordered_map<const Value*, Module> modules{{graph.inputs().at(0), module}};
  bool is_all = true;
  for_each_node(graph.block(), [&](Node* node) {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const bool names_it = i == 0 && (node->kind() == c10::prim::GetAttr || node->kind() == c10::prim::SetAttr);
      is_all &= names_it ? modules.count(node->input(0)) > 0 : modules.count(node->input(i)) == 0;
    }
    const auto owner = node->kind() == c10::prim::GetAttr ? modules.find(node->input()) : modules.end();
    if (owner == modules.end()) return;
    const c10::IValue value = owner->second.attr(node->s(c10::attr::name));
    if (value.isModule()) modules.emplace(node->output(), value.toModule());
    visit(node, value);
  });
  return is_all;
}

// Whether whoever reads the value makes something fresh of it.
bool is_only_read(const Value* value) {
  return std::all_of(value->uses().begin(), value->uses().end(), [](const Use& use) {
    const Op* op = op_of(use.user);
    const bool keeps_nothing = op && (op->memory == Memory::fresh || op->memory == Memory::no_tensor);
    return keeps_nothing && !op->has(trait::carries) && !may_write(use.user);
  });
}

bool holds_objects(const c10::Type& type) {
  const auto inside = type.containedTypes();
  return type.kind() == c10::TypeKind::ClassType ||
         std::any_of(inside.begin(), inside.end(), [](const c10::TypePtr& one) { return holds_objects(*one); });
}

// Adds the memory that the graph may write to, or let others have. False where that is not known.
bool find_shared(Graph& graph, const Module& module, Storages& shared) {
  const std::unordered_set<std::string> set = names_set(graph);
  bool is_known = true;
  const bool is_all = for_each_attribute(graph, module, [&](Node* node, const c10::IValue& value) {
    if (value.isModule() || (value.isTensor() && is_only_read(node->output()) && !set.count(node->s(c10::attr::name))))
      return;
    if (holds_objects(*value.type())) {  // of classes in C++, as the contexts of packed ops: nobody can look inside
      is_known = false;
      return;
    }
    c10::IValue::HashAliasedIValues parts;
    value.getSubValues(parts);
    for (const c10::IValue& part : parts) {
      if (part.isTensor() && part.toTensor().has_storage()) {
        shared.insert(part.toTensor().storage().unsafeGetStorageImpl());
      }
    }
  });
  return is_all && is_known;
}

// Takes the module's tensors out of the graph of a method, where they can be found by name alone and share no memory with
// those in `shared`, and with them what reads the submodules that they come from.
void lift_attributes(Graph& graph, const Module& module, const Storages& shared, LiftedTensors& lifted) {
  std::vector<Node*> reads;
  for_each_attribute(graph, module, [&](Node* node, const c10::IValue& value) {
    reads.push_back(node);
    if (!value.isTensor() || !value.toTensor().defined()) return;
    const at::Tensor& tensor = value.toTensor();
    if (!shared.empty() && (!tensor.has_storage() || shared.count(tensor.storage().unsafeGetStorageImpl()))) return;
    node->output()->replaceAllUsesWith(lifted.lift(tensor, graph));
  });
  for (size_t i = reads.size(); i-- > 0;) {
    if (!reads[i]->hasUses()) reads[i]->destroy();
  }
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

// The frozen module without a look at its weights: see lifted_tensors.h. All but those in `shared` are only read.
Module frozen_past_weights(const Module& copy, const Storages& shared, std::vector<std::string> other_methods) {
  Lifted lifted;
  for (const auto& method : copy.get_methods()) {
    const auto graph = torch::jit::toGraphFunction(method.function()).graph();
    LiftedTensors& own = lifted.emplace(method.name(), LiftedTensors(*graph)).first->second;
    lift_attributes(*graph, copy, shared, own);
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
  bool writes = false, is_known = true;
  Storages shared;
  for (const auto& method : copy.get_methods()) {
    const auto graph = torch::jit::toGraphFunction(method.function()).graph();
    torch::jit::Inline(*graph);
    share_submodules(*graph);
    keep_detached_apart(graph);
    keep_autocast_off(*graph);
    writes |= may_write_weights(graph);
    is_known &= find_shared(*graph, copy, shared);
  }
  if (!writes) shared.clear();
  Module frozen = writes && !is_known ? torch::jit::freeze_module(copy, other_methods)
                                      : frozen_past_weights(copy, shared, std::move(other_methods));
  restore_plain_attributes(module, frozen);
  unshare(frozen);
  return frozen;
}

}  // namespace ipex::passes
