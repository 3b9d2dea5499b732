// Calls of modules, by a way that is shorter than nn.Module's.
#pragma once

#include <torch/csrc/python_headers.h>

#include <pybind11/pybind11.h>

namespace ipex::python {

// Defines `QuickCall(module)`: calls an optimised ScriptModule from Python. See docs/decisions/modules.md.
void define_quick_call(pybind11::module_& m);

// Defines `LayerCall(module, op, bound, dtype, parameters)`: calls a module of one packed op. See layer_call.cpp.
void define_layer_call(pybind11::module_& m);

}  // namespace ipex::python
