// Tensors of a graph that are its inputs for a while.
//
// TorchScript's own passes compare every constant tensor with every other one of the same type: with the thousands of equal
// shapes that a deep network has, optimising it would take time that grows with their square. Inputs are compared by name.
#pragma once

#include <unordered_map>
#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

class LiftedTensors {
 public:
  explicit LiftedTensors(const Graph& graph) : first_(graph.inputs().size()) {}

  // The input that stands for the tensor.
  Value* lift(const at::Tensor& tensor, Graph& graph);
  // Lifts every constant tensor that has dimensions. Those that have none are numbers, and worth comparing.
  void lift_constants(Graph& graph);
  // Makes constants of the inputs again: of this graph, or of a copy of it.
  void put_back(Graph& graph) const;

 private:
  size_t first_;
  std::vector<at::Tensor> tensors_;
  std::unordered_map<const c10::TensorImpl*, Value*> inputs_;
};

}  // namespace ipex::passes
