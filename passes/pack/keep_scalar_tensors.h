// Tensors without dimensions that must stay tensors.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <unordered_set>

#include "pipeline/pass.h"

namespace ipex::passes {

// TorchScript's executor makes a number of a constant without dimensions that is added, subtracted, multiplied or divided
// by, as a trace holds the numbers of a model as such. Beside another tensor without dimensions, or one of a lower category
// (bools, integers, floats, complex numbers), a tensor decides the dtype, and a number doesn't: of a buffer that became a
// constant the executor gives float32 where eager gives float64 or bfloat16. As an attribute it stays what it is.
//
//   before   %b = prim::Constant[value={1.5}]()
//            %y = aten::add(%x, %b, %alpha)
//   after    %b = prim::GetAttr[name="scalar_0"](%self)
//            %y = aten::add(%x, %b, %alpha)
class ScalarTensors {
 public:
  // Those of a module that is not frozen yet: later, nothing tells doubles and integers from numbers. What is computed from them
  // counts as a number.
  explicit ScalarTensors(const torch::jit::Module& module);

  // Before the passes, which take a constant for a number: those beside no tensor that has dimensions and is floating. Beside
  // integers a number gives the default dtype, and a tensor of floats its own.
  void keep_deciding(const std::shared_ptr<Graph>& graph, torch::jit::Module& module) const;
  // After the passes: the others.
  void keep(const std::shared_ptr<Graph>& graph, torch::jit::Module& module) const;

 private:
  bool contain(const at::Tensor& tensor) const;
  template <typename Decides>
  void keep_where(const Decides& decides, Graph& graph, torch::jit::Module& module) const;

  std::unordered_set<const c10::StorageImpl*> storages_;
};

}  // namespace ipex::passes
