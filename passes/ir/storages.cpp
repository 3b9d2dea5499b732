#include "ir/storages.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>

#include "ir/graph_walk.h"

namespace ipex::passes {
namespace {

const void* place_of_storage(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

bool is_custom_class(const Value* value) {
  const auto type = value->type()->cast<c10::ClassType>();
  return type && type->name() && type->name()->qualifiedName().starts_with("__torch__.torch.classes");
}

}  // namespace

std::vector<const void*> places_of(const at::Tensor& tensor) {
  switch (tensor.layout()) {
    case at::kStrided:
      if (tensor.has_storage()) return {place_of_storage(tensor)};
      break;
    case at::kSparse:
      return {place_of_storage(tensor._indices()), place_of_storage(tensor._values())};
    case at::kSparseCsr:
    case at::kSparseBsr:
      return {place_of_storage(tensor.crow_indices()), place_of_storage(tensor.col_indices()),
              place_of_storage(tensor.values())};
    case at::kSparseCsc:
    case at::kSparseBsc:
      return {place_of_storage(tensor.ccol_indices()), place_of_storage(tensor.row_indices()),
              place_of_storage(tensor.values())};
    default:
      break;
  }
  return {tensor.unsafeGetTensorImpl()};
}

Storages::Storages(const torch::jit::Module& module) : module_(module) {
  for (const auto& method : module.get_methods()) {
    visit(*torch::jit::toGraphFunction(method.function()).graph(), {module._ivalue().get()});
  }
  exposed_.emplace(graphs_);
  const auto mark = [&](const c10::IValue& value) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      for (const void* place : places_of(tensor)) changing_.insert(place);
    });
  };
  for (const auto& [node, values] : reads_) {
    if (!exposed_->contain(node->output())) continue;
    for (const auto& [owner, value] : values) {
      exposed_attributes_.emplace(owner, node->s(c10::attr::name));
      mark(value);
    }
  }
  for (const Node* node : stray_reads_) {
    if (!exposed_->contain(node->output())) continue;
    for (const auto& part : module.modules()) {
      if (part.hasattr(node->s(c10::attr::name))) mark(part.attr(node->s(c10::attr::name)));
    }
  }
  std::vector<std::pair<Node*, c10::IValue>> constants;
  for (Graph* graph : graphs_) {
    for_each_node(graph->block(), [&](Node* node) {
      if (node->kind() != c10::prim::Constant) return;
      const c10::IValue value = torch::jit::toIValue(node->output()).value_or(c10::IValue());  // none of a function
      if (!value.isTensor() && !value.isTuple() && !value.isList() && !value.isGenericDict()) return;
      if (exposed_->contain(node->output())) mark(value);
      constants.emplace_back(node, value);
    });
  }
  for (const auto& [node, value] : constants) {
    if (exposed_->contain(node->output()) || changes(value)) changing_constants_.push_back(node);
  }
}

// With another receiver, once more.
void Storages::visit(Graph& graph, const std::vector<Object*>& arguments) {
  if (!visited_.emplace(&graph, arguments).second) return;
  if (std::find(graphs_.begin(), graphs_.end(), &graph) == graphs_.end()) {
    torch::jit::Inline(graph);
    graphs_.push_back(&graph);
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i]) objects_[graph.inputs().at(i)].insert(arguments[i]);
  }
  for_each_node(graph.block(), [&](Node* node) { visit_node(node); });
}

void Storages::visit_node(Node* node) {
  if (node->kind() == c10::prim::GetAttr) return read(node);
  const auto owners = node->inputs().empty() ? objects_.end() : objects_.find(node->input(0));
  if (node->kind() == c10::prim::SetAttr) {
    const std::string& name = node->s(c10::attr::name);
    if (owners == objects_.end()) {
      set_of_type_.emplace(node->input(0)->type().get(), name);
    } else {
      for (const Object* owner : owners->second) set_.emplace(owner, name);
    }
  } else if (node->kind() == c10::prim::unchecked_cast && owners != objects_.end()) {
    const auto same = owners->second;
    objects_[node->output()].insert(same.begin(), same.end());
  } else if (node->kind() == c10::prim::CallMethod || graph_inside(node)) {
    visit_call(node);
  } else if (node->kind() == c10::prim::ModuleContainerIndex && owners != objects_.end()) {
    const auto containers = owners->second;
    for (const Object* container : containers) {
      for (const c10::IValue& part : container->slots()) {
        if (part.isModule()) objects_[node->output()].insert(part.toObject().get());
      }
    }
  }
}

void Storages::visit_call(Node* node) {
  if (const auto inside = graph_inside(node)) {
    std::vector<Object*> arguments;
    for (const Value* input : node->inputs()) {
      const auto known = objects_.find(input);
      arguments.push_back(known == objects_.end() ? nullptr : *known->second.begin());
      is_all_known_ &= known == objects_.end() || known->second.size() == 1;
    }
    graphs_inside_.push_back(inside);
    return visit(*inside, arguments);
  }
  const auto receivers = objects_.find(node->input(0));
  if (receivers == objects_.end()) {
    is_all_known_ &= is_custom_class(node->input(0));
    return;
  }
  const auto same = receivers->second;
  for (Object* receiver : same) {
    torch::jit::Function& method = receiver->type()->getMethod(node->s(c10::attr::name));
    if (method.isGraphFunction()) visit(*torch::jit::toGraphFunction(method).graph(), {receiver});
  }
}

void Storages::read(Node* node) {
  const auto owners = objects_.find(node->input());
  if (owners == objects_.end()) return stray_reads_.push_back(node);
  const auto same = owners->second;
  auto& values = reads_[node];
  for (Object* owner : same) {
    const bool is_known =
        std::any_of(values.begin(), values.end(), [&](const auto& read) { return read.first == owner; });
    if (is_known) continue;
    const c10::IValue value = owner->getAttr(node->s(c10::attr::name));
    values.emplace_back(owner, value);
    if (value.isObject()) objects_[node->output()].insert(value.toObject().get());
  }
}

bool Storages::changes(const c10::IValue& value) const {
  bool found = false;
  for_each_tensor(value, [&](const at::Tensor& tensor) {
    const auto places = places_of(tensor);
    found |= std::any_of(places.begin(), places.end(), [&](const void* place) { return changing_.count(place) > 0; });
  });
  return found;
}

bool Storages::changes(const Object* owner, const std::string& name, const c10::IValue& value) const {
  return set_.count({owner, name}) || set_of_type_.count({owner->type().get(), name}) ||
         exposed_attributes_.count({owner, name}) || changes(value);
}

const c10::IValue* Storages::constant(const Node* read) const {
  const auto values = reads_.find(read);
  if (!is_all_known_ || values == reads_.end() || values->second.size() != 1) return nullptr;
  const auto& [owner, value] = values->second.front();
  // An object that is no module may be replaced by another one.
  const bool is_constant = owner->type()->is_module() && !changes(owner, read->s(c10::attr::name), value);
  return is_constant ? &value : nullptr;
}

std::vector<std::string> Storages::changing_attributes() const {
  std::vector<std::string> paths;
  for (const auto& [path, part] : module_.named_modules()) {
    const auto type = part.type();
    for (size_t i = 0; i < type->numAttributes(); ++i) {
      const std::string& name = type->getAttributeName(i);
      const c10::IValue value = part.attr(name);
      bool is_changing = !value.isModule() && changes(part._ivalue().get(), name, value);
      if (!is_all_known_) for_each_tensor(value, [&](const at::Tensor&) { is_changing |= !value.isModule(); });
      if (is_changing) paths.push_back(path.empty() ? name : path + "." + name);
    }
  }
  return paths;
}

}  // namespace ipex::passes
