// Whose memory the tensors of a module lie in, and who may write it: one answer for all of its methods.
//
// A weight can be folded, packed, and shared with the original only where nobody ever writes it. So an attribute is a
// constant where no method sets it, no method writes to its memory, by whatever name, and no method lets it out to a
// caller who may. Tensors that lie in one storage are constants together or not at all.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/exposed_values.h"

namespace ipex::passes {

// Where the elements of a tensor lie. A sparse tensor has parts, a tensor of an opaque format is its own place.
std::vector<const void*> places_of(const at::Tensor& tensor);

// Calls visit(tensor) for each tensor in a value: in lists, in dicts, in objects.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  value.visit([&](const c10::IValue& part) {
    if (part.isTensor() && part.toTensor().defined()) visit(part.toTensor());
    return false;
  });
}

class Storages {
 public:
  // Inlines what its methods call. Nothing else is changed.
  explicit Storages(const torch::jit::Module& module);

  // The value that a GetAttr reads, if it is the same, with the same elements, in each call. Null otherwise.
  const c10::IValue* constant(const Node* read) const;

  // The constants of the graphs that hold tensors which are not: a trace has a tensor that is no buffer as a constant, and
  // may write it.
  const std::vector<Node*>& changing_constants() const { return changing_constants_; }

  // The attributes that are no constants, each by its path from the module.
  std::vector<std::string> changing_attributes() const;

  const ExposedValues& exposed() const { return *exposed_; }

 private:
  using Object = c10::ivalue::Object;

  void visit(Graph& graph, const std::vector<Object*>& arguments);
  void visit_node(Node* node);
  void visit_call(Node* node);
  void read(Node* node);
  bool changes(const c10::IValue& value) const;
  bool changes(const Object* owner, const std::string& name, const c10::IValue& value) const;

  torch::jit::Module module_;
  std::vector<Graph*> graphs_;
  std::vector<std::shared_ptr<Graph>> graphs_inside_;
  std::set<std::pair<const Graph*, std::vector<Object*>>> visited_;
  std::unordered_map<const Value*, std::unordered_set<Object*>> objects_;
  std::unordered_map<const Node*, std::vector<std::pair<Object*, c10::IValue>>> reads_;
  std::set<std::pair<const Object*, std::string>> set_, exposed_attributes_;
  std::set<std::pair<const c10::Type*, std::string>> set_of_type_;
  std::vector<Node*> stray_reads_;  // of objects that are not known by name
  bool is_all_known_ = true;
  std::optional<ExposedValues> exposed_;
  std::unordered_set<const void*> changing_;
  std::vector<Node*> changing_constants_;
};

}  // namespace ipex::passes
