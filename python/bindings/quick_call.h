// Calls of optimised modules from Python, without the detours that torch makes when nothing asks for them. See
// docs/decisions/0019-calls-from-python.md.
#pragma once

#include <torch/csrc/python_headers.h>

#include <pybind11/pybind11.h>

namespace ipex::python {

// Adds QuickCall(module) to ipex._C: what a ScriptModule's `_compiled_call_impl` is, which nn.Module.__call__ asks first.
void define_quick_call(pybind11::module_& m);

}  // namespace ipex::python
