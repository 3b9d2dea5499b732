// ipex._C.StreamPool.
#pragma once

#include <pybind11/pybind11.h>

namespace ipex::python {

void define_stream_pool(pybind11::module_& m);

}  // namespace ipex::python
