// What nn.Module.__call__ would do: whether it comes down to the module's forward, and how to leave a call to it.
#pragma once

#include <pybind11/pybind11.h>

#include <c10/util/ArrayRef.h>

#include <exception>

namespace ipex::python {

using Arguments = c10::ArrayRef<PyObject*>;

// The attributes that the module itself has, as it keeps them.
pybind11::object own_attributes(const pybind11::object& module);

// Whether the module with these attributes has no hooks, neither of its own nor of all modules, and this `forward` among
// them: null for one that is its class's.
bool is_called_plainly(PyObject* own, PyObject* forward);

// nn.Module's own way.
PyObject* call_as_usual(const pybind11::object& module, Arguments arguments, PyObject* names);

// Sets the error in Python that torch makes of this one. Returns null.
PyObject* raise(const std::exception_ptr& error);

}  // namespace ipex::python
