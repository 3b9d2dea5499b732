// The functions of <ipex/memory.h>.
#pragma once

#include <pybind11/pybind11.h>

namespace ipex::python {

void define_memory(pybind11::module_& m);

}  // namespace ipex::python
