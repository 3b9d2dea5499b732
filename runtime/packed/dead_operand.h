// An operand of a call that nobody can read once the call is done: the result may take over its memory.
//
// Nothing in the graph says so, and nobody has to prove it. TorchScript's interpreter moves a value off its register
// where it is used last, into the list of operands and with that list onto the stack, so that a value without any other
// use arrives with a single owner. Whatever else holds it, a caller, a constant, a view, a list, a later node, a profiler,
// counts, and then it is only read.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace ipex::runtime {

// The tensors of a list. Those of a list that nobody else holds are moved, so that the result alone holds them.
std::vector<at::Tensor> take_tensors(c10::IValue list);

// Whether nobody but the caller holds the tensor or its memory, which is all the tensor's, and was allocated as a
// result's would be: memory that the user lent to a tensor is read long after that tensor is gone.
bool is_dead(const at::Tensor& operand);

// A new tensor where a dead one lies, of as many elements.
at::Tensor in_memory_of(const at::Tensor& dead, at::IntArrayRef sizes, at::MemoryFormat format);

}  // namespace ipex::runtime
