#include "made_anew.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_map>

#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ops/op_table.h"
#include "pack/numbered_attributes.h"

namespace ipex::passes {
namespace {

// Where a node finds the element that it reads of a list which nobody changes. None for others.
std::optional<Use> element_read(Node* node) {
  if (node->kind() != c10::aten::__getitem__) return std::nullopt;
  const auto elements = elements_of(node->input(0));
  const auto index = constant_integer(node->input(1));
  if (!elements || !index || may_change(node->input(0))) return std::nullopt;
  const auto place = *index < 0 ? *index + std::ssize(*elements) : *index;
  if (place < 0 || place >= std::ssize(*elements)) return std::nullopt;
  return Use(node->input(0)->node(), static_cast<size_t>(place));
}

class Constants {
 public:
  explicit Constants(const Storages& storages) : storages_(storages) {}

  // Whether somebody may compute the value once and for all.
  bool contain(const Value* value) {
    const auto [known, is_new] = known_.try_emplace(value, false);
    if (is_new) {
      const bool is_constant = look(value);
      known_[value] = is_constant;
      return is_constant;
    }
    return known->second;
  }

  void forget() { known_.clear(); }

 private:
  bool look(const Value* value) {
    const Node* node = value->node();
    if (node->kind() == c10::prim::Constant) return true;
    if (node->kind() == c10::prim::GetAttr) return storages_.constant(node) != nullptr;
    // What is chosen of a list, where the list may hold something else beside.
    if (const auto element = element_read(const_cast<Node*>(node))) {
      return contain(element->user->input(element->offset));
    }
    if (node->inputs().empty() || !node->blocks().empty() || node->kind() == c10::prim::Param) return false;
    if (node->isNondeterministic()) return false;
    const auto inputs = node->inputs();
    return std::all_of(inputs.begin(), inputs.end(), [&](const Value* input) { return contain(input); });
  }

  const Storages& storages_;
  std::unordered_map<const Value*, bool> known_;
};

// Whether it is a tensor in memory that its op makes, as far as that is known.
bool is_made(const Value* value) {
  const Node* node = value->node();
  return op_of(node) ? is_fresh(value) : node->maybeSchema() && has_tensor_type(value);
}

// A use of a constant that the node's result is made of. A number or a tensor: what else there is decides which kernel runs.
std::optional<Use> constant_of(Node* node) {
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    const Use use = element_read(node->input(i)->node()).value_or(Use(node, i));
    const Value* read = use.user->input(use.offset);
    Node* source = const_cast<Node*>(read->node());
    if (source->kind() == c10::prim::GetAttr) return use;
    if (source->kind() == c10::prim::Constant) {
      const auto value = torch::jit::toIValue(read);
      if (value && (value->isTensor() || value->isScalar() || value->isList())) return use;
    } else if (const auto inside = constant_of(source)) {
      return inside;
    }
  }
  return std::nullopt;
}

c10::TypePtr plain_type_of(const Value* value) {
  return has_tensor_type(value) ? c10::TypePtr(c10::TensorType::get()) : value->type();
}

}  // namespace

void copy_written_literals(Graph& graph) {
  static const OpName detach("aten::detach"), to("aten::to");
  std::vector<Node*> literals;
  for_each_node(graph.block(), [&](Node* node) {
    if (!detach.is_of(node) || !to.is_of(node->input()->node())) return;
    if (node->input()->node()->input(0)->node()->kind() == c10::prim::Constant) literals.push_back(node);
  });
  if (literals.empty()) return;
  const ExposedValues exposed({&graph});
  for (Node* literal : literals) {
    if (!exposed.contain(literal->output())) continue;
    const torch::jit::WithInsertPoint guard(literal);
    replace(literal, graph.insert(c10::aten::clone, {literal->input()})->node());
  }
}

std::vector<std::string> make_anew(torch::jit::Module& module, const Storages& storages) {
  std::vector<std::string> names;
  NumberedAttributes attributes(module, "constant_");
  const auto insert = [&](Graph& graph, const c10::TypePtr& type, const c10::IValue& value) {
    Value* made = attributes.insert(graph, type, value);
    names.push_back(made->node()->s(c10::attr::name));
    return made;
  };
  for (const auto& method : module.get_methods()) {
    Graph& graph = *torch::jit::toGraphFunction(method.function()).graph();
    Constants constants(storages);
    for_each_node(graph.block(), [&](Node* node) {
      const auto outputs = node->outputs();
      const bool may_be_written = std::any_of(outputs.begin(), outputs.end(), [&](const Value* made) {
        return is_made(made) && !storages.exposed().are_seen_by_torch(made);
      });
      if (!may_be_written || !constants.contain(outputs[0])) return;
      const auto use = constant_of(node);
      if (!use) return;
      const Value* constant = use->user->input(use->offset);
      const auto value = torch::jit::toIValue(constant);
      const torch::jit::WithInsertPoint guard(use->user);
      use->user->replaceInput(
          use->offset, insert(graph, plain_type_of(constant), value ? *value : *storages.constant(constant->node())));
      constants.forget();  // what is made of it is no constant either
    });
  }
  for (Node* constant : storages.changing_constants()) {
    Graph& graph = *constant->owningGraph();
    const bool is_of_a_method = !graph.inputs().empty() && graph.inputs()[0]->type() == module.type();
    if (!is_of_a_method) continue;
    const torch::jit::WithInsertPoint guard(constant);
    constant->output()->replaceAllUsesWith(
        insert(graph, plain_type_of(constant->output()), *torch::jit::toIValue(constant->output())));
  }
  return names;
}

}  // namespace ipex::passes
