// Files with packed weights, for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace ipex::python {

void define_aot(pybind11::module_& m);

}  // namespace ipex::python
