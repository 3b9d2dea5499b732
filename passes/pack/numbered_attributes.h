// Attributes that a pass adds to a module, named by a prefix and a number: packed_0, packed_1, ..
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <unordered_set>

#include "pipeline/pass.h"

namespace ipex::passes {

// Module's own functions compare a name with those of all attributes, several times for one that is added: thousands of
// packed layers would take most of the time.
class NumberedAttributes {
 public:
  NumberedAttributes(torch::jit::Module& module, std::string prefix) : module_(module), prefix_(std::move(prefix)) {
    for (size_t i = 0; i < module.type()->numAttributes(); ++i) taken_.insert(module.type()->getAttributeName(i));
  }

  // Adds one, and reads it at the insert point of the graph of a method.
  Value* insert(Graph& graph, const c10::TypePtr& type, const c10::IValue& value) {
    const std::string name = free_name();
    module_._ivalue()->setSlot(module_.type()->addAttribute(name, type), value);
    Node* read = graph.create(c10::prim::GetAttr, {graph.inputs().at(0)});
    read->s_(c10::attr::name, name);
    read->output()->setType(type)->setDebugName(name);
    return graph.insertNode(read)->output();
  }

 private:
  std::string free_name() {
    while (true) {
      std::string name = prefix_ + std::to_string(next_++);
      if (taken_.insert(name).second) return name;
    }
  }

  torch::jit::Module& module_;
  std::string prefix_;
  std::unordered_set<std::string> taken_;
  size_t next_ = 0;
};

}  // namespace ipex::passes
