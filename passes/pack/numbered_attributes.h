// Attributes that a pass adds to a module, named by a prefix and a number: packed_0, packed_1, ..
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>

#include "pipeline/pass.h"

namespace ipex::passes {

class NumberedAttributes {
 public:
  NumberedAttributes(torch::jit::Module& module, std::string prefix) : module_(module), prefix_(std::move(prefix)) {}

  // Adds one, and reads it at the insert point of the graph of a method.
  Value* insert(Graph& graph, const c10::TypePtr& type, const c10::IValue& value) {
    while (module_.hasattr(prefix_ + std::to_string(next_))) ++next_;
    const std::string name = prefix_ + std::to_string(next_++);
    module_.register_attribute(name, type, value);
    return graph.insertGetAttr(graph.inputs().at(0), name);
  }

 private:
  torch::jit::Module& module_;
  std::string prefix_;
  size_t next_ = 0;
};

}  // namespace ipex::passes
