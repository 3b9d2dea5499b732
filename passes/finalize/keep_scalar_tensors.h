// Tensors without dimensions that must stay tensors.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include "pass.h"

namespace ipex::passes {

// TorchScript's executor makes a number of a constant without dimensions that is added, subtracted, multiplied or divided
// by. Beside another tensor without dimensions a tensor decides the dtype, and a number doesn't: float32 where eager gives
// float64. An attribute stays what it is.
//
//   before   %b = prim::Constant[value={1.5}]()
//            %y = aten::add(%x, %b, %alpha)
//   after    %b = prim::GetAttr[name="scalar_0"](%self)
//            %y = aten::add(%x, %b, %alpha)
void keep_scalar_tensors(const std::shared_ptr<Graph>& graph, torch::jit::Module& module);

}  // namespace ipex::passes
